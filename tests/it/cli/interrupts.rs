//! Tests Ctrl-C.

use super::{command, figures};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

/// A question with a reply of a hundred tokens; the interrupt comes after the first few.
const STORY: &str = "Tell me a story about an owl.";

fn interrupt(child: &std::process::Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn an_interrupted_run_prints_what_came() {
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

#[test]
fn an_interrupt_in_a_conversation_stops_the_reply_alone() {
    let mut command = command(["chat", "--temp", "0", "--reasoning", "off"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut err = String::new();
    for turn in 1..=2 {
        writeln!(stdin, "{STORY}").unwrap();
        stdout.read_exact(&mut [0; 20]).unwrap();
        interrupt(&child);
        while figures(&err).len() < turn {
            assert!(stderr.read_line(&mut err).unwrap() > 0, "{err}");
        }
        assert_eq!(err.matches(", stopped").count(), turn, "{err}");
    }
    drop(stdin);
    stdout.read_to_end(&mut Vec::new()).unwrap();
    stderr.read_to_string(&mut err).unwrap();
    assert!(child.wait().unwrap().success(), "{err}");
    assert_eq!(figures(&err).len(), 2, "{err}");
}
