//! Tests thinking and answer, in any pieces.

use super::cuts::{cut, every_way, places};
use proptest::prelude::*;
use wglm::text::{ReplyParser, ReplyPiece};

/// The whole (thinking, answer) of a reply that arrives in `chunks`.
fn parse<S: AsRef<str>>(starts_in_thinking: bool, chunks: &[S]) -> (String, String) {
    let mut parser = ReplyParser::new(starts_in_thinking);
    let mut pieces: Vec<_> = chunks.iter().flat_map(|chunk| parser.push(chunk.as_ref())).collect();
    pieces.extend(parser.finish());
    let (mut thinking, mut text) = (String::new(), String::new());
    for piece in pieces {
        let (part, all) = match piece {
            ReplyPiece::Thinking(part) => (part, &mut thinking),
            ReplyPiece::Text(part) => (part, &mut text),
            other => panic!("{other:?}"),
        };
        assert!(!part.is_empty());
        *all += &part;
    }
    (thinking, text)
}

/// The same, computed from the whole reply at once.
fn at_once(mut inside: bool, reply: &str) -> (String, String) {
    let (mut thinking, mut rest, mut after_tag) = (String::new(), reply, false);
    if inside {
        rest = rest.trim_start().strip_prefix("<think>").unwrap_or(rest);
    }
    loop {
        let letters = rest.trim_start();
        if inside {
            let (block, after) = rest.split_once("</think>").unwrap_or((rest, ""));
            thinking += block;
            rest = after;
            (inside, after_tag) = (false, true);
        } else if let Some(after) = letters.strip_prefix("<think>") {
            (rest, inside) = (after, true);
        } else if let Some(after) = letters.strip_prefix("</think>") {
            (rest, after_tag) = (after, true);
        } else {
            return (thinking, if after_tag { letters } else { rest }.into());
        }
    }
}

/// The result does not depend on how the reply is cut into pieces.
fn check(starts_in_thinking: bool, reply: &str, thinking: &str, text: &str) {
    let want = (thinking.to_string(), text.to_string());
    every_way(reply).for_each(|chunks| assert_eq!(parse(starts_in_thinking, &chunks), want, "{chunks:?}"));
}

#[test]
fn a_reply_that_starts_in_thinking() {
    check(true, "why\n</think>\n\nBecause. \n", "why\n", "Because. \n");
    check(true, "</think>Because.", "", "Because.");
    check(true, "never closed", "never closed", "");
    check(true, "never closed </thi", "never closed </thi", "");
    check(true, "a < b </b> </thinking> </think>yes", "a < b </b> </thinking> ", "yes");
    check(true, "<<</think></think", "<<", "</think");
    check(true, "", "", "");
    check(true, "  \n", "  \n", "");
}

#[test]
fn a_reply_that_starts_in_the_answer() {
    check(false, "Hello\n", "", "Hello\n");
    check(false, "\n Hello", "", "\n Hello");
    check(false, "  ", "", "  ");
    check(false, "<b>bold</b> <", "", "<b>bold</b> <");
    check(false, "<thin air", "", "<thin air");
    check(false, "</thin", "", "</thin");
}

#[test]
fn tags_that_the_model_writes() {
    check(false, "\n<think>why</think>\nBecause.", "why", "Because.");
    check(false, "<think></think>\n\nBecause.", "", "Because.");
    check(false, "</think>\n\nBecause.", "", "Because.");
    check(false, "</think>\n</think> Because.", "", "Because.");
    check(false, "</think>\n", "", "");
    check(false, "</think> </thi", "", "</thi");
    check(true, "\n<think>why</think>Because.", "why", "Because.");
    check(true, "one</think>\n<think>two</think>\nBecause.", "onetwo", "Because.");
}

#[test]
fn an_answer_may_write_about_tags() {
    check(false, "The tag <think> opens, </think> closes.", "", "The tag <think> opens, </think> closes.");
    check(true, "x</think>Use </think>.", "x", "Use </think>.");
}

/// Text that is certain is returned at once.
#[test]
fn pieces_come_at_once() {
    let mut parser = ReplyParser::new(true);
    assert_eq!(parser.push("why <"), [ReplyPiece::Thinking("why ".into())]);
    assert!(parser.is_thinking());
    assert_eq!(parser.push("3"), [ReplyPiece::Thinking("<3".into())]);
    assert_eq!(parser.push("</think"), []);
    assert_eq!(parser.push(">\n"), []);
    assert_eq!(parser.push("Be"), [ReplyPiece::Text("Be".into())]);
    assert!(!parser.is_thinking());
    assert_eq!(parser.push("cause <"), [ReplyPiece::Text("cause <".into())]);
    assert_eq!(parser.finish(), []);
}

proptest! {
    #[test]
    fn cuts_do_not_matter(
        parts in prop::collection::vec(
            prop::sample::select(vec!["<think>", "</think>", "<", "</", "think", ">", "a", " ", "\n", "é", "</think", "<think"]), 0..12),
        places in places(),
        starts_in_thinking: bool,
    ) {
        let reply = parts.concat();
        let chunks = cut(&reply, &places);
        prop_assert_eq!(parse(starts_in_thinking, &chunks), at_once(starts_in_thinking, &reply));
    }
}
