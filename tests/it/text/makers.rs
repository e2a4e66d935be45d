//! Replies in the forms of calls that this library knows, from the fixtures of the package canitoolcall, which come
//! from the makers' templates and from tests and reports of other engines. The fixtures are not part of this
//! repository: `tests/clients/canitoolcall.sh` downloads them and runs this test.

use super::cuts::{every_way, letters};
use super::tokenizer::tiny;
use serde_json::{Value, json};
use std::path::Path;
use wglm::text::{Family, ReplyParser, ReplyPiece, TokenType, Tokenizer};

/// Their families, with what a template of each has.
const FAMILIES: [(&str, &str, usize); 3] =
    [("glm", "<arg_key>", 51), ("kimi", "<|im_middle|>", 26), ("qwen3-hermes", "<tool_call>", 50)];

/// The tags of a family that are tokens of its vocabularies.
fn tags(family: &str) -> &'static [&'static str] {
    match family {
        "glm" => &[
            "<think>",
            "</think>",
            "<tool_call>",
            "</tool_call>",
            "<arg_key>",
            "</arg_key>",
            "<arg_value>",
            "</arg_value>",
        ],
        "kimi" => &[
            "<think>",
            "</think>",
            "<|tool_calls_section_begin|>",
            "<|tool_calls_section_end|>",
            "<|tool_call_begin|>",
            "<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
        ],
        _ => &["<think>", "</think>", "<tool_call>", "</tool_call>"],
    }
}

/// Thinking, text and calls. Blanks around texts do not count, as in the package's own comparison.
fn read(pieces: Vec<ReplyPiece>) -> Value {
    let (mut thinking, mut text, mut calls, mut json) = (String::new(), String::new(), Vec::new(), String::new());
    for piece in pieces {
        match piece {
            ReplyPiece::Thinking(more) => thinking += &more,
            ReplyPiece::Text(more) => text += &more,
            ReplyPiece::ToolCallStart { .. } => json.clear(),
            ReplyPiece::ToolCallPiece(more) => json += &more,
            ReplyPiece::ToolCall(call) => {
                assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), call.function.arguments);
                calls.push(json!({"name": call.function.name, "arguments": call.function.arguments}));
            }
            _ => {}
        }
    }
    json!({"content": text.trim(), "reasoning_content": thinking.trim(), "tool_calls": calls})
}

/// What a fixture expects, in the same form. A reply that is no call may be anything else.
fn wanted(fixture: &Value) -> Option<Value> {
    let expected = fixture.get("expected")?;
    let text = |name: &str| expected[name].as_str().unwrap_or_default().trim().to_owned();
    Some(json!({
        "content": text("content"),
        "reasoning_content": text("reasoning_content"),
        "tool_calls": expected["tool_calls"],
    }))
}

/// The reply as tags and the texts between them.
fn parts<'a>(mut reply: &'a str, tags: &[&'static str]) -> Vec<(Option<&'static str>, &'a str)> {
    let mut parts = Vec::new();
    while let Some((at, tag)) = tags.iter().filter_map(|tag| Some((reply.find(tag)?, *tag))).min() {
        parts.extend([(None, &reply[..at]), (Some(tag), tag)]);
        reply = &reply[at + tag.len()..];
    }
    parts.push((None, reply));
    parts
}

/// All ways to read a reply: by the letters of its tags in any pieces, and by the tokens of its tags.
fn every_reading(parser: &ReplyParser, reply: &str, tags: &[&'static str]) -> Vec<Vec<ReplyPiece>> {
    let by_letters = |chunks: Vec<String>| {
        let mut parser = parser.clone();
        let mut pieces: Vec<_> = chunks.iter().flat_map(|chunk| parser.push(chunk)).collect();
        pieces.extend(parser.finish());
        pieces
    };
    let names: Vec<_> = tags.iter().map(|tag| (*tag, TokenType::UserDefined)).collect();
    let tokenizer = Tokenizer::new(tiny(&names, &[])).unwrap();
    let by_tokens = |in_letters: bool| {
        let (mut parser, mut pieces) = (parser.clone().with_tokenizer(&tokenizer), Vec::new());
        for (tag, text) in parts(reply, tags) {
            match tag.and_then(|tag| tokenizer.special(tag)).filter(|token| parser.is_tag(*token)) {
                Some(token) => pieces.extend(parser.push_tag(token)),
                None if in_letters => letters(text).iter().for_each(|letter| pieces.extend(parser.push(letter))),
                None => pieces.extend(parser.push(text)),
            }
        }
        pieces.extend(parser.finish());
        pieces
    };
    every_way(reply).map(by_letters).chain([by_tokens(false), by_tokens(true)]).collect()
}

/// Whether the reply begins in thinking: the end of its prompt says so.
fn begins_in_thinking(fixture: &Value, family: &Value) -> bool {
    let models = family["reference_models"].as_array().unwrap();
    let model = models.iter().find(|model| model["repo"] == fixture["models"][0]).unwrap();
    let prompt = fixture["generation_prompt"].as_str().or(model["default_generation_prompt"].as_str()).unwrap();
    prompt.trim_end().ends_with("<think>")
}

#[test]
#[ignore = "needs the fixtures of canitoolcall: tests/clients/canitoolcall.sh"]
fn calls_are_parsed_as_their_makers_meant() {
    let folder = std::env::var("CANITOOLCALL").expect("CANITOOLCALL: the folder of the fixtures");
    let json = |path: &Path| std::fs::read_to_string(path).unwrap();
    let mut failures = Vec::new();
    for (name, template, least) in FAMILIES {
        let folder = Path::new(&folder).join(name);
        let family: Value = serde_json::from_str(&json(&folder.join("family.json"))).unwrap();
        let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
        let texts: Vec<String> =
            files.filter(|file| file.extension().is_some_and(|end| end == "jsonl")).map(|file| json(&file)).collect();
        let fixtures =
            texts.iter().flat_map(|text| text.lines()).map(|line| serde_json::from_str::<Value>(line).unwrap());
        // Kimi K3 has another form of calls, which no file of this architecture has.
        let known = fixtures.filter(|fixture| !fixture["tags"].as_array().unwrap().contains(&"x-kimi-k3".into()));
        let mut count = 0;
        for fixture in known {
            count += 1;
            let parser = ReplyParser::new(begins_in_thinking(&fixture, &family))
                .with_family(Family::of(template))
                .with_tools(fixture["tools"].as_array().unwrap());
            let wanted = wanted(&fixture);
            let is_right = |found: &Value| match &wanted {
                Some(wanted) => found == wanted,
                None => found["tool_calls"] == json!([]),
            };
            let readings = every_reading(&parser, fixture["raw_output"].as_str().unwrap(), tags(name));
            let wrong = readings.into_iter().map(read).find(|found| !is_right(found));
            failures.extend(wrong.map(|found| format!("{}: {found}, and not {wanted:?}", fixture["id"])));
        }
        println!("{name}: {count} fixtures");
        assert!(count >= least, "{name}: only {count} fixtures");
    }
    assert!(failures.is_empty(), "{} fixtures:\n{}", failures.len(), failures.join("\n"));
}
