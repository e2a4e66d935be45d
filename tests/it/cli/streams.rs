//! Tests closed pipes, full disks and logs.

#[cfg(target_os = "linux")]
use super::refused;
use super::{ANSWER, QUESTION, command, outcome};
use std::io::Read;
use std::process::Stdio;

#[test]
fn extended_readers_may_close_a_pipe_early() {
    for line in [
        "plan --json",
        "plan --device all",
        "inspect",
        "run -p story --raw",
        "bench -p 1 -n 1 -r 1",
        "bench -p 1 -n 1 -r 1 -o csv",
        "selftest -k copy",
    ] {
        let mut command = command(line.split_whitespace());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && !err.contains("error") && !err.contains("panicked"), "{line}: {err}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn extended_a_full_disk_is_an_error() {
    for line in [
        "inspect",
        "plan",
        "run -p hi",
        "tokenize hi",
        "bench -p 1 -n 0 -r 1 -o json",
        "profile -r 1 -o csv",
        "selftest -k copy",
        "plan --device m2",
    ] {
        let mut command = command(line.split_whitespace());
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        command.stdout(full);
        refused(line, &outcome(command), "No space left on device");
    }
}

#[test]
fn logs_are_plain_in_a_pipe() {
    let mut command = command(["run", "-p", "hi", "-n", "1"]);
    command.env("RUST_LOG", "wglm=info");
    let done = outcome(command);
    assert!(done.err.contains("INFO") && !done.err.contains('\x1b'), "{done:?}");
}

#[test]
fn extended_logs_go_to_stderr() {
    let mut command = command(["run", "-p", QUESTION, "--temp", "0"]);
    command.env("RUST_LOG", "wglm=debug").env("NO_COLOR", "1");
    let done = outcome(command);
    assert!(done.out == ANSWER && done.err.contains("wglm_engine::gpu") && !done.err.contains('\x1b'), "{done:?}");
}
