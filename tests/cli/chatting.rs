//! Conversations over pipes.

use crate::{ANSWER, Outcome, QUESTION, THOUGHT, command, fed, figures};

/// A conversation over pipes: the lines in, everything out.
fn chat(rest: &str, lines: &[&str]) -> Outcome {
    let arguments = ["chat"].into_iter().chain(rest.split_whitespace());
    let done = fed(command(arguments), lines.join("\n").as_bytes());
    assert_eq!(done.code, Some(0), "{done:?}");
    done
}

#[test]
fn a_conversation_computes_only_what_is_new() {
    let lines = ["My name is Clara.", "", "What is the opposite of dark?", "What is my name?"];
    let done = chat("--reasoning off --temp 0", &lines);
    assert_eq!(done.out, "Nice to meet you, Clara!\nThe opposite of dark is light.\nYour name is Clara.\n");
    let turns = figures(&done.err);
    assert_eq!(turns.len(), 3);
    // The last prompt is that of dialog2, 42 tokens long. Reply and end of a turn are in the cache for the next.
    assert_eq!(turns[2][0] + turns[2][1], 42, "{turns:?}");
    assert_eq!(turns[0][0], 0);
    for pair in turns.windows(2) {
        assert_eq!(pair[1][0], pair[0].iter().sum::<usize>(), "cached is what the turn before left: {turns:?}");
    }
}

#[test]
fn commands_of_a_conversation() {
    let lines = ["/help", "/nosuch", QUESTION, "/clear", "/reasoning off", QUESTION, "/exit", "never said"];
    let done = chat("--temp 0", &lines);
    assert_eq!(done.out, ANSWER.repeat(2), "{done:?}");
    assert!(done.err.contains("no command /nosuch") && done.err.contains("/clear"), "{done:?}");
    assert_eq!(done.err.matches(THOUGHT).count(), 1, "{done:?}");
    assert_eq!(figures(&done.err).len(), 2);
    assert_eq!(done.err.matches("4096 tokens of context").count(), 1);
}

#[test]
fn a_conversation_survives_a_full_context() {
    let long = "fox ".repeat(60);
    let done = chat("--temp 0 -c 40", &[&long, QUESTION]);
    assert!(done.err.contains("error: the context is full") && done.out == ANSWER, "{done:?}");
}
