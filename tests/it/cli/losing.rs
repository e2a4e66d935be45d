//! Tests what the command does when its GPU is lost: it opens the GPU again, loads the model again, and continues.
//!
//! The command drops the submissions of its first device according to `WGLM_DROP_WORK`, which works only in debug
//! builds.

use super::{ANSWER, CommandResult, QUESTION, THOUGHT, command, fed, figures, outcome};

/// Runs the command with a GPU that drops all work from a submission on.
fn losing(args: &[&str], from: &str, input: &[u8]) -> CommandResult {
    let mut command = command(args);
    command.env("WGLM_DROP_WORK", from);
    if input.is_empty() { outcome(command) } else { fed(command, input) }
}

fn losses(done: &CommandResult) -> usize {
    done.err.matches("note: the GPU was lost").count()
}

/// In the prompt, in the thinking, or in the answer: the reply is shown once, and counted as a whole.
#[test]
fn extended_a_reply_continues_after_a_loss() {
    let args = ["run", "-p", QUESTION, "--temp", "0"];
    let whole = outcome(command(args));
    assert_eq!(whole.out, ANSWER);
    for from in ["1", "12"] {
        let done = losing(&args, from, b"");
        assert_eq!((done.out.as_str(), done.code, losses(&done)), (ANSWER, Some(0), 1), "{from}: {done:?}");
        let shown = done.err.replace('\n', "");
        let thought = shown.split("[end of thinking]").next().unwrap();
        let parts = thought.split("[thinking]").nth(1).unwrap();
        assert!(parts.contains(THOUGHT) || parts.contains("note: the GPU was lost"), "{from}: {done:?}");
        assert_eq!(figures(&done.err)[0][2], figures(&whole.err)[0][2], "{from}: {done:?}");
    }
    let quiet = losing(&["run", "-p", QUESTION, "--temp", "0", "--quiet"], "6", b"");
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), (ANSWER, ""));
}

#[test]
fn extended_plain_text_continues_after_a_loss() {
    let args = ["run", "--raw", "-p", "One morning the owl", "--temp", "0", "-n", "24"];
    let (whole, done) = (outcome(command(args)), losing(&args, "9", b""));
    assert_eq!((done.out.as_str(), losses(&done)), (whole.out.as_str(), 1), "{done:?}");
    assert_eq!(figures(&done.err)[0][2], figures(&whole.err)[0][2], "{done:?}");
}

#[test]
fn a_load_is_tried_again() {
    let done = losing(&["run", "-p", QUESTION, "--temp", "0"], "load", b"");
    assert_eq!((done.out.as_str(), done.code, losses(&done)), (ANSWER, Some(0), 1), "{done:?}");
}

/// The messages before the loss are not forgotten.
#[test]
fn extended_a_conversation_continues_after_a_loss() {
    let lines = b"My name is Clara.\nWhat is the opposite of dark?\nWhat is my name?\n";
    let done = losing(&["chat", "--reasoning", "off", "--temp", "0"], "16", lines);
    let said = "Nice to meet you, Clara!\nThe opposite of dark is light.\nYour name is Clara.\n";
    assert_eq!((done.out.as_str(), done.code, losses(&done)), (said, Some(0), 1), "{done:?}");
    assert_eq!(figures(&done.err).len(), 3);
}
