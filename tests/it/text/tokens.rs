//! Tests replies that are parsed by their tokens: a tag with a token is recognised by it, and the same letters are
//! text.

use super::calls::{joined, tools};
use super::fable_vocab::fable_vocab;
use super::tokenizer::tiny;
use proptest::prelude::*;
use std::sync::LazyLock;
use wglm::text::{ReplyParser, ReplyPiece, Tokenizer};

static FABLE: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::new(fable_vocab()).unwrap());

const TAGS: [&str; 8] =
    ["<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"];

/// A part of a reply.
#[derive(Debug, Clone, PartialEq)]
enum Part {
    Text(&'static str),
    Tag(&'static str),
}
use Part::{Tag, Text};

fn feed(mut parser: ReplyParser, parts: &[Part]) -> Vec<ReplyPiece> {
    let mut pieces = Vec::new();
    for part in parts {
        pieces.extend(match part {
            Text(text) => parser.push(text),
            Tag(tag) => {
                let token = FABLE.special(tag).unwrap();
                if parser.is_tag(token) { parser.push_tag(token) } else { parser.push(tag) }
            }
        });
    }
    pieces.extend(parser.finish());
    joined(pieces)
}

fn by_tokens(inside: bool, parts: &[Part]) -> Vec<ReplyPiece> {
    feed(ReplyParser::new(inside).with_tools(&tools()).with_tokenizer(&FABLE), parts)
}

fn thinking(text: &str) -> ReplyPiece {
    ReplyPiece::Thinking(text.to_owned())
}

fn text(text: &str) -> ReplyPiece {
    ReplyPiece::Text(text.to_owned())
}

#[test]
fn letters_are_text_where_there_is_a_token() {
    let parts =
        [Text("I close it by </think>, so"), Text("<tool_call>bare</tool_call>"), Tag("</think>"), Text("Yes.")];
    let thought = "I close it by </think>, so<tool_call>bare</tool_call>";
    assert_eq!(by_tokens(true, &parts), [thinking(thought), text("Yes.")]);
    assert_eq!(by_tokens(false, &[Text("</think>\nYes.")]), [text("</think>\nYes.")]);
    // A value may contain its closing tag, in letters.
    let value = [
        Tag("<tool_call>"),
        Text("weather"),
        Tag("<arg_key>"),
        Text("city"),
        Tag("</arg_key>"),
        Tag("<arg_value>"),
        Text("</arg_value></tool_call>"),
        Tag("</arg_value>"),
        Tag("</tool_call>"),
    ];
    let pieces = by_tokens(false, &value);
    let Some(ReplyPiece::ToolCall(call)) = pieces.last() else { panic!("{pieces:?}") };
    assert_eq!(call.function.arguments["city"], "</arg_value></tool_call>");
}

/// A token that opens a call is not text if the reply ends there.
#[test]
fn an_opening_that_is_cut_off_is_no_text() {
    let failed = ReplyPiece::ToolCallFailed { text: "<tool_call>\n".into(), cut: true };
    let parts = [Text("Well."), Tag("<tool_call>"), Text("\n")];
    assert_eq!(by_tokens(false, &parts), [text("Well."), failed]);
}

/// A tag in the middle of an answer is part of the text.
#[test]
fn tokens_that_mean_nothing_are_text() {
    let parts = [Text("Use"), Tag("<think>"), Text("and"), Tag("</think>"), Tag("<arg_key>"), Text(".")];
    assert_eq!(by_tokens(false, &parts), [text("Use<think>and</think><arg_key>.")]);
}

/// Without tools the tags of calls are text, and a tag without a token in the vocabulary is recognised by its letters.
#[test]
fn only_tags_of_the_reply_are_tags() {
    let token = |tag: &str| FABLE.special(tag).unwrap();
    let parser = ReplyParser::new(false).with_tokenizer(&FABLE);
    assert!(parser.is_tag(token("<think>")) && !parser.is_tag(token("<tool_call>")) && !parser.is_tag(0));
    let parser = parser.with_tools(&tools());
    assert!(TAGS.iter().all(|tag| parser.is_tag(token(tag))) && !parser.is_tag(token("<|user|>")));
    let bare = Tokenizer::new(tiny(&[], &[])).unwrap();
    let mut parser = ReplyParser::new(true).with_tokenizer(&bare);
    assert!(!parser.is_tag(token("</think>")) && parser.push_tag(token("</think>")).is_empty());
    assert_eq!(parser.push("a</think>b"), [thinking("a"), text("b")]);
}

/// The same reply with other letters in place of text that looks like a tag.
fn disguised(text: &str) -> String {
    text.replace("think>", "thimk>").replace("tool_call>", "tool_cell>").replace("arg_", "erg_")
}

fn part() -> impl Strategy<Value = Part> {
    let texts = ["weather", "days", "5", " ", "\n", "a", "é", "</thi", "nk>", "<", "<tool_", "call>"];
    prop_oneof![
        prop::sample::select(TAGS.to_vec()).prop_map(Tag),
        prop::sample::select(TAGS.to_vec()).prop_map(Text),
        prop::sample::select(texts.to_vec()).prop_map(Text),
    ]
}

proptest! {
    /// Letters that look like a tag have the same effect as any others.
    #[test]
    fn letters_change_nothing(parts in prop::collection::vec(part(), 0..14), inside: bool) {
        let mut parser = ReplyParser::new(inside).with_tools(&tools()).with_tokenizer(&FABLE);
        let mut pieces = Vec::new();
        for part in &parts {
            pieces.extend(match part {
                Text(text) => parser.push(&disguised(text)),
                Tag(tag) => parser.push_tag(FABLE.special(tag).unwrap()),
            });
        }
        pieces.extend(parser.finish());
        let shape = |pieces: &[ReplyPiece]| disguised(&format!("{pieces:?}"));
        prop_assert_eq!(shape(&by_tokens(inside, &parts)), shape(&joined(pieces)));
    }

    /// If no letters look like a tag, tags by tokens give the same result as tags by letters in a vocabulary without
    /// such tokens.
    #[test]
    fn tokens_are_as_letters(parts in prop::collection::vec(part(), 0..14), inside: bool) {
        let parts: Vec<_> = parts.into_iter().filter(|part| matches!(part, Tag(_)) || !matches!(part, Text(text) if
            text.contains(['<', '>']))).collect();
        // An opening with which a reply ends is a call that was cut off if it is a token, and otherwise text.
        let last = parts.iter().rfind(|part| !matches!(part, Text(text) if text.trim().is_empty()));
        prop_assume!(!matches!(last, Some(Tag("<tool_call>"))));
        let letters: Vec<_> = parts.iter().map(|part| match part { Text(text) | Tag(text) => Text(text) }).collect();
        prop_assert_eq!(by_tokens(inside, &parts), feed(ReplyParser::new(inside).with_tools(&tools()), &letters));
    }
}
