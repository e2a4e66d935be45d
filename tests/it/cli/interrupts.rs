//! Tests Ctrl-C.

use super::{ANSWER, QUESTION, command, figures, json, with_shell};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

/// A question with a reply of a hundred tokens; the interrupt comes after the first few.
const STORY: &str = "Tell me a story about an owl.";

fn interrupt(child: &std::process::Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn extended_an_interrupted_run_prints_its_partial_answer() {
    let mut command = command(["run", "--temp", "0", "--reasoning", "off", STORY]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = vec![0; 20];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut out).unwrap();
    interrupt(&child);
    stdout.read_to_end(&mut out).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{err}");
    assert!(String::from_utf8(out).unwrap().ends_with('\n') && err.contains(", stopped"), "{err}");
    assert!(figures(&err)[0][2] > 0, "{err}");
}

/// The messages that are left in the pipe are not answered.
#[test]
fn extended_an_interrupt_ends_a_conversation_over_a_pipe() {
    let mut command = command(["chat", "--temp", "0", "--reasoning", "off"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    writeln!(stdin, "{STORY}\n{STORY}\n{STORY}").unwrap();
    stdout.read_exact(&mut [0; 20]).unwrap();
    interrupt(&child);
    stdout.read_to_end(&mut Vec::new()).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{err}");
    assert_eq!((figures(&err).len(), err.matches(", stopped").count()), (1, 1), "{err}");
}

/// A program that reads the answer gets one object whenever Ctrl-C is pressed: during the load, and during the prompt.
#[test]
fn an_interrupt_leaves_one_object() {
    let prompt = "fox ".repeat(2000);
    for (phase, logged) in [("load", "opened the GPU"), ("prompt", "the GPU summed the weights")] {
        let mut command = command(["run", "--json", "--temp", "0", "-ub", "1", "-p", &prompt]);
        command.env("RUST_LOG", "wglm=debug").env("NO_COLOR", "1");
        if phase == "load" {
            command.env("MESA_SHADER_CACHE_DISABLE", "true"); // so that it takes seconds
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        while !log.next().unwrap().unwrap().contains(logged) {}
        interrupt(&child);
        log.for_each(drop);
        let output = child.wait_with_output().unwrap();
        let reply = json(std::str::from_utf8(&output.stdout).unwrap());
        assert_eq!(output.status.code(), Some(130), "{phase}: {reply}");
        assert_eq!((&reply["stop"], &reply["error"]), (&"cancelled".into(), &serde_json::Value::Null), "{phase}");
        assert_eq!(reply.as_object().unwrap().len(), 12, "{phase}: {reply}");
    }
}

/// A shell starts the background programs of a script with SIGINT ignored, because Ctrl-C is meant for the one in the
/// foreground.
#[test]
fn extended_an_interrupt_that_was_ignored_stays_ignored() {
    let mut run = with_shell(command(["run", "--temp", "0", QUESTION]), "trap '' INT");
    let mut child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut told = String::new();
    err.read_line(&mut told).unwrap(); // [thinking]
    interrupt(&child);
    err.read_to_string(&mut told).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), ANSWER.as_bytes()), "{told}");
}

/// The same for a command whose result is a list.
#[test]
fn an_interrupt_of_a_measurement_leaves_an_object() {
    let mut bench = command(["bench", "-o", "json", "-p", "512", "-n", "512", "-r", "1000"]);
    bench.env("RUST_LOG", "wglm=debug").env("NO_COLOR", "1");
    let mut child = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    while !log.next().unwrap().unwrap().contains("the GPU summed the weights") {}
    interrupt(&child);
    log.for_each(drop);
    let output = child.wait_with_output().unwrap();
    let told = json(std::str::from_utf8(&output.stdout).unwrap());
    assert_eq!((output.status.code(), told), (Some(130), serde_json::json!({"error": "cancelled", "hint": null})));
}
