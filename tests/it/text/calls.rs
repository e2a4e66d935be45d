//! Tests calls of functions in a reply, in any pieces.

use super::cuts::{cut, every_way, letters, places};
use super::tokenizer::tiny;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use wglm::text::{ChatInput, ChatTemplate, Message, ReplyParser, ReplyPiece, TokenType, Tokenizer, ToolCall};

/// A function with a parameter of every type.
pub fn tools() -> Vec<Value> {
    let properties = json!({
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "exact": {"type": ["string", "number"]},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "unit": {"enum": ["c", "f"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    });
    let function = json!({"name": "weather", "parameters": {"type": "object", "properties": properties}});
    vec![json!({"type": "function", "function": function}), json!({"name": "bare", "parameters": {}})]
}

/// The pieces of a reply, with adjacent pieces of one kind joined.
fn pieces<S: AsRef<str>>(thinking: bool, chunks: &[S]) -> Vec<ReplyPiece> {
    let mut parser = ReplyParser::new(thinking).with_tools(&tools());
    let mut pieces: Vec<_> = chunks.iter().flat_map(|chunk| parser.push(chunk.as_ref())).collect();
    pieces.extend(parser.finish());
    joined(pieces)
}

/// Joins adjacent pieces of one kind.
pub fn joined(pieces: Vec<ReplyPiece>) -> Vec<ReplyPiece> {
    let mut joined: Vec<ReplyPiece> = Vec::new();
    for piece in pieces {
        match (joined.last_mut(), piece) {
            (Some(ReplyPiece::Text(all)), ReplyPiece::Text(part)) => *all += &part,
            (Some(ReplyPiece::Thinking(all)), ReplyPiece::Thinking(part)) => *all += &part,
            (Some(ReplyPiece::ToolCallPiece(all)), ReplyPiece::ToolCallPiece(part)) => *all += &part,
            (_, piece) => joined.push(piece),
        }
    }
    joined
}

/// The same without the pieces of calls, which have to add up to the complete calls.
fn parse<S: AsRef<str>>(thinking: bool, chunks: &[S]) -> Vec<ReplyPiece> {
    let (mut ends, mut begun) = (Vec::new(), None);
    for piece in pieces(thinking, chunks) {
        match piece {
            ReplyPiece::ToolCallStart { id, name } => {
                assert!(id.is_none() && begun.replace((name, String::new())).is_none());
            }
            ReplyPiece::ToolCallPiece(piece) => begun.as_mut().expect("a call that began").1 += &piece,
            ReplyPiece::ToolCall(call) => {
                let (name, json) = begun.take().expect("a call that began");
                let read: Value = serde_json::from_str(&json).unwrap();
                assert_eq!((name, &read), (call.function.name.clone(), &call.function.arguments));
                ends.push(ReplyPiece::ToolCall(call));
            }
            ReplyPiece::ToolCallFailed { text, cut } => {
                match begun.take() {
                    Some((name, json)) => {
                        assert!(text.strip_prefix("<tool_call>").unwrap().trim_start().starts_with(&name));
                        let error = serde_json::from_str::<Value>(&json).unwrap_err();
                        assert!(json.starts_with('{') && error.is_eof(), "{json}: {error}");
                    }
                    None => assert!(cut && text.starts_with("<tool_call>") && !text.contains("<arg_key>"), "{text}"),
                }
                ends.push(ReplyPiece::ToolCallFailed { text, cut });
            }
            other => {
                assert_eq!(begun, None, "{other:?} within a call");
                ends.push(other);
            }
        }
    }
    assert_eq!(begun, None, "a call that never ended");
    ends
}

fn failed(text: &str, cut: bool) -> ReplyPiece {
    ReplyPiece::ToolCallFailed { text: text.to_owned(), cut }
}

fn text(text: &str) -> ReplyPiece {
    ReplyPiece::Text(text.to_owned())
}

fn thinking(text: &str) -> ReplyPiece {
    ReplyPiece::Thinking(text.to_owned())
}

fn call(name: &str, arguments: Value) -> ReplyPiece {
    let Value::Object(arguments) = arguments else { panic!("{arguments}") };
    ReplyPiece::ToolCall(ToolCall::new(name, arguments))
}

/// The result does not depend on how the reply is cut into pieces.
fn check(inside: bool, reply: &str, want: &[ReplyPiece]) {
    every_way(reply).for_each(|chunks| assert_eq!(parse(inside, &chunks), want, "{chunks:?}"));
}

#[test]
fn one_call_in_either_form() {
    let want = [call("weather", json!({"city": "Köln", "days": 3}))];
    let close = "<tool_call>weather<arg_key>city</arg_key><arg_value>Köln</arg_value><arg_key>days</arg_key>\
                 <arg_value>3</arg_value></tool_call>";
    check(false, close, &want);
    let wide = "\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Köln</arg_value>\n<arg_key> days </arg_key>\n\
                <arg_value>3</arg_value>\n</tool_call>\n";
    check(false, wide, &want);
    check(true, &format!("It rains?</think>{close}"), &[thinking("It rains?"), want[0].clone()]);
    check(false, "<tool_call>bare</tool_call>", &[call("bare", json!({}))]);
    check(false, "<tool_call> nowhere.to-be:found\n</tool_call>", &[call("nowhere.to-be:found", json!({}))]);
}

#[test]
fn several_calls_and_text_around_them() {
    let [one, two] = ["Rome", "Oslo"]
        .map(|c| format!("<tool_call>weather<arg_key>city</arg_key><arg_value>{c}</arg_value></tool_call>"));
    let [rome, oslo] = ["Rome", "Oslo"].map(|city| call("weather", json!({"city": city})));
    check(false, &format!("{one}{two}"), &[rome.clone(), oslo.clone()]);
    check(
        true,
        &format!("Two.</think>\nLet me see. \n{one} \n{two}\n\nThat is all. "),
        &[thinking("Two."), text("Let me see."), rome.clone(), oslo.clone(), text(" \n \n\n\nThat is all. ")],
    );
    check(false, &format!("{one}<think>again</think>{two}"), &[rome.clone(), thinking("again"), oslo]);
    // Models forget to close their thinking.
    check(true, &format!("I call.\n{one}</think>Done."), &[thinking("I call.\n"), rome, text("Done.")]);
}

/// The type of a value depends on the schema; blanks in strings stay.
#[test]
fn values_are_what_the_schema_says() {
    for (key, written, want) in [
        ("city", "5", json!("5")),
        ("city", " two\n lines\n", json!(" two\n lines\n")),
        ("city", "null", json!("null")),
        ("city", "", json!("")),
        ("city", "\"quoted\"", json!("\"quoted\"")),
        ("city", "a < b </tool_call> <arg_key>", json!("a < b </tool_call> <arg_key>")),
        ("days", "5", json!(5)),
        ("days", " 5\n", json!(5)),
        ("days", "five", json!("five")),
        ("days", "-1.5e3", json!(-1500.0)),
        ("exact", "5", json!(5)),
        ("exact", "true", json!("true")),
        ("maybe", "null", json!(null)),
        ("maybe", "5", json!("5")),
        ("unit", "c", json!("c")),
        ("tags", "[\"a\", {\"b\": null}]", json!(["a", {"b": null}])),
        ("unknown", "[1, 2", json!("[1, 2")),
        ("unknown", "[1, 2]", json!([1, 2])),
    ] {
        let reply = format!("<tool_call>weather<arg_key>{key}</arg_key><arg_value>{written}</arg_value></tool_call>");
        check(false, &reply, &[call("weather", json!({key: want}))]);
    }
}

/// Text that is not a call stays, with its tags, and no call after it is lost.
#[test]
fn text_that_is_not_a_call_stays() {
    let good = "<tool_call>bare</tool_call>";
    for bad in [
        "<tool_call></tool_call>",
        "<tool_call> is how a call begins.",
        "<tool_call>two words</tool_call>",
        "<tool_call>weather<arg_value>5</arg_value></tool_call>",
        "<tool_call><tool_call>",
        "</tool_call>",
        "<arg_key>days</arg_key>",
    ] {
        check(false, bad, &[text(bad)]);
        check(false, &format!("{bad} {good}"), &[text(bad), call("bare", json!({}))]);
        let inside = [thinking(bad), text("Yes.")];
        check(true, &format!("{bad}</think>Yes."), &inside);
    }
}

/// An error after the name makes a failed call, up to its end or to the beginning of another.
#[test]
fn errors_in_a_call_are_not_text() {
    let good = "<tool_call>bare</tool_call>";
    for bad in [
        "<tool_call>weather<arg_key>days</arg_key>5</tool_call>",
        "<tool_call>weather<arg_key>days</arg_key><arg_value>5</arg_value>and so on</tool_call>",
        "<tool_call>weather<arg_key>days<arg_value>5</arg_value></tool_call>",
        "<tool_call>weather <arg_key>days</arg_key></arg_value><arg_key></tool_call>",
        "<tool_call>weather<arg_key></tool_call>",
    ] {
        check(false, bad, &[failed(bad, false)]);
        check(
            false,
            &format!("Well. {bad} {good} Yes."),
            &[text("Well."), failed(bad, false), call("bare", json!({})), text("   Yes.")],
        );
        let open = bad.strip_suffix("</tool_call>").unwrap();
        check(false, &format!("{open}{good}"), &[failed(open, false), call("bare", json!({}))]);
        // Thinking continues after it, up to its end.
        check(true, &format!("a{bad}b</think>Yes."), &[thinking("a"), failed(bad, false), thinking("b"), text("Yes.")]);
        if !open.ends_with("<arg_key>") {
            check(true, &format!("{open} </think>Yes."), &[failed(&format!("{open} "), false), text("Yes.")]);
        }
    }
}

/// Tags of calls within a value are text, unless the reply ends there and the value has no other tags.
#[test]
fn a_value_may_contain_tags() {
    let reply =
        |value: &str| format!("<tool_call>weather<arg_key>city</arg_key><arg_value>{value}</arg_value></tool_call>");
    for value in ["</tool_call>", "a </tool_call>\n", "<tool_call>b</tool_call>", "</tool_call></tool_call>\n<arg_key>"]
    {
        check(false, &reply(value), &[call("weather", json!({"city": value}))]);
    }
    let open = "<tool_call>weather<arg_key>city</arg_key><arg_value>Rome\n</tool_call>\n";
    check(false, open, &[call("weather", json!({"city": "Rome\n"}))]);
    for more in ["</tool_call>", ".", "<tool_call>bare</tool_call>"] {
        check(false, &format!("{open}{more}"), &[failed(&format!("{open}{more}"), true)]);
    }
}

/// Where tags are tokens, the next call shows that a value has ended whose own tag was forgotten.
#[test]
fn a_value_that_does_not_end_loses_no_call() {
    let names = ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"];
    let tokenizer = Tokenizer::new(tiny(&names.map(|name| (name, TokenType::UserDefined)), &[])).unwrap();
    let [call_start, call_end, key, key_end, value, value_end] = names.map(|name| tokenizer.special(name).unwrap());
    let parsed = |between: &str, more: &[u32]| {
        let mut parser = ReplyParser::new(false).with_tools(&tools()).with_tokenizer(&tokenizer);
        let mut pieces = Vec::new();
        for (tag, text) in [(call_start, "weather"), (key, "city"), (key_end, ""), (value, "Rome"), (call_end, between)]
        {
            pieces.extend([parser.push_tag(tag), parser.push(text)].concat());
        }
        more.iter().for_each(|tag| pieces.extend(parser.push_tag(*tag)));
        pieces.extend([parser.push_tag(call_start), parser.push("bare"), parser.push_tag(call_end)].concat());
        pieces.extend([parser.push_tag(value_end), parser.push_tag(call_end), parser.finish()].concat());
        pieces.into_iter().filter(|piece| matches!(piece, ReplyPiece::ToolCall(_))).collect::<Vec<_>>()
    };
    assert_eq!(parsed("\n", &[]), [call("weather", json!({"city": "Rome"})), call("bare", json!({}))]);
    // What stands between them is part of the value.
    let text = "Rome</tool_call> and <tool_call>bare</tool_call>";
    assert_eq!(parsed(" and ", &[]), [call("weather", json!({"city": text}))]);
    let text = "Rome</tool_call></tool_call><tool_call>bare</tool_call>";
    assert_eq!(parsed("", &[call_end]), [call("weather", json!({"city": text}))]);
}

/// Numbers keep their digits.
#[test]
fn numbers_are_reported_as_they_are_written() {
    let reply = "<tool_call>weather<arg_key>days</arg_key><arg_value> 12345678901234567890123\n</arg_value>\
                 <arg_key>exact</arg_key><arg_value>1.50e2</arg_value>\
                 <arg_key>list</arg_key><arg_value>[1.50, {\"a\": 12345678901234567890123}]</arg_value></tool_call>";
    let all = pieces(false, &[reply]);
    let wanted = "{\"days\":12345678901234567890123,\"exact\":1.50e2,\
                  \"list\":[1.50, {\"a\": 12345678901234567890123}]}";
    assert_eq!(all[1], ReplyPiece::ToolCallPiece(wanted.into()));
}

/// A reply that ends inside a call: before its name is complete it is text.
#[test]
fn a_call_that_is_cut_off_fails() {
    let whole = "<tool_call>weather\n<arg_key>city</arg_key><arg_value>Rome</arg_value>\n</tool_call>";
    for (end, _) in whole.char_indices().skip(1) {
        let cut = &whole[..end];
        let want = if cut.len() > "<tool_call>".len() { failed(cut, true) } else { text(cut) };
        check(false, cut, std::slice::from_ref(&want));
        check(
            false,
            &format!("Well. {cut}"),
            &match want {
                ReplyPiece::Text(_) => vec![text(&format!("Well. {cut}"))],
                _ => vec![text("Well."), want],
            },
        );
    }
    // Everything inside a value that never ends belongs to the value.
    let open = "<tool_call>weather<arg_key>city</arg_key><arg_value>Ro</think>The answer.<tool_call>bare</tool_call>";
    check(true, open, &[failed(open, true)]);
}

/// A call is reported while it is written.
#[test]
fn calls_are_reported_in_pieces() {
    let mut parser = ReplyParser::new(false).with_tools(&tools());
    let start = || ReplyPiece::ToolCallStart { id: None, name: "weather".into() };
    let piece = |text: &str| ReplyPiece::ToolCallPiece(text.into());
    assert_eq!(parser.push("Well.\n<tool_call>wea"), [text("Well.")]);
    assert_eq!(parser.push("ther\n"), []);
    assert_eq!(parser.push("<arg_key>ci"), [start(), piece("{")]);
    assert_eq!(parser.push("ty</arg_key><arg_value>\"Ro"), [piece(r#""city":"\"Ro"#)]);
    assert_eq!(parser.push("\nme</arg_"), [piece(r"\nme")]);
    // A value that may be JSON comes when it is known which.
    assert_eq!(parser.push("value>\n<arg_key>days</arg_key><arg_value> -1"), [piece("\"")]);
    assert_eq!(parser.push("0</arg_value><arg_key>city</arg_key><arg_value>again"), [piece(r#","days":-10"#)]);
    let whole = call("weather", json!({"city": "\"Ro\nme", "days": -10}));
    assert_eq!(parser.push("</arg_value></tool_call>"), [piece("}"), whole]);
    let none = [start(), piece("{}"), call("weather", json!({})), text("\n\n!")];
    assert_eq!(parser.push("\n<tool_call>weather</tool_call>!"), none);
}

/// A string is reported as soon as its text cannot be anything else by the schema.
#[test]
fn values_that_may_be_json_are_held_until_that_is_known() {
    for (key, text, held) in [
        ("city", "5", 0),
        ("unit", "c", 0),
        ("exact", "yes", 0),
        ("exact", "2026-11-26", 10),
        ("exact", "2026, or so", 4),
        ("maybe", "  nullable", 6),
        ("maybe", "5", 0),
        ("maybe", "[1]", 0),
        ("tags", "[1, 2", 5),
        ("tags", "none", 1),
        ("unknown", "the whole text", 1),
        ("unknown", "trust", 3),
        ("unknown", "\"quoted", 7),
    ] {
        let mut parser = ReplyParser::new(false).with_tools(&tools());
        parser.push(&format!("<tool_call>weather<arg_key>{key}</arg_key><arg_value>"));
        let pieces: Vec<_> = letters(text).iter().map(|letter| parser.push(letter).len()).collect();
        assert_eq!(pieces.iter().take_while(|count| **count == 0).count(), held, "{key}: {text}");
        let end = parser.push("</arg_value></tool_call>");
        assert_eq!(end.last(), Some(&call("weather", json!({key: text}))));
    }
}

#[test]
fn without_tools_tags_are_text() {
    let reply = "a <tool_call>bare</tool_call> b";
    let mut parser = ReplyParser::new(false).with_tools(&[]);
    let pieces = [parser.push(reply), parser.finish()].concat();
    assert_eq!(joined(pieces), [text(reply)]);
}

/// Arguments can be any JSON, including strings that look like something else.
pub fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i32>().prop_map(|number| Value::from(f64::from(number) / 8.0)),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn source(path: &str) -> String {
    std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The text that a template writes for an assistant's turn after the prompt for it.
fn written(template: &ChatTemplate, message: Message) -> String {
    let messages = [Message::user("?"), message];
    let mut input = ChatInput::new(&messages[..1]);
    input.enable_thinking = Some(false);
    let prompt = template.render(&input).unwrap();
    input = ChatInput { messages: &messages, add_generation_prompt: false, ..input };
    let all = template.render(&input).unwrap();
    all.strip_prefix(&prompt).unwrap_or_else(|| panic!("{all:?} does not begin with {prompt:?}")).to_owned()
}

proptest! {
    /// The calls that a template writes are parsed as the same calls: the next prompt contains what the model wrote.
    #[test]
    fn calls_survive_the_template(
        calls in prop::collection::vec(prop::collection::vec(("[a-z]{1,8}", value()), 0..4), 1..4),
        answer in "[a-z]{0,5}",
    ) {
        let mut properties = Map::new();
        let mut list = Vec::new();
        for (index, arguments) in calls.into_iter().enumerate() {
            let arguments: Map<_, _> = arguments.into_iter().map(|(k, v)| (format!("{k}{index}"), v)).collect();
            for (key, value) in &arguments {
                let ty = if value.is_string() { json!({"type": "string"}) } else { json!({}) };
                properties.insert(key.clone(), ty);
            }
            list.push(ToolCall::new("f", arguments));
        }
        let tools = [json!({"function": {"name": "f", "parameters": {"properties": properties}}})];
        for path in ["models/training/chat_template.jinja", "tests/fixtures/jinja/glm_like.jinja"] {
            let template = ChatTemplate::new(&source(path)).unwrap();
            let text = written(&template, Message::assistant(answer.as_str()).with_tool_calls(list.clone()));
            prop_assume!(!list.iter().any(|call| call.function.arguments.to_string().contains("</arg")));
            let mut parser = ReplyParser::new(false).with_tools(&tools);
            let mut pieces = [parser.push(&text), parser.finish()].concat();
            pieces.retain(|piece| matches!(piece, ReplyPiece::Text(_) | ReplyPiece::ToolCall(_)));
            let text_before = Some(&answer).filter(|a| !a.is_empty()).map(|a| ReplyPiece::Text(a.clone()));
            let want: Vec<ReplyPiece> =
                text_before.into_iter().chain(list.iter().cloned().map(ReplyPiece::ToolCall)).collect();
            prop_assert_eq!(pieces, want, "{}", text);
        }
    }

    /// What is reported of a value before it ends is what it means by the schema.
    #[test]
    fn a_value_means_what_was_reported(
        types in prop::sample::subsequence(vec!["string", "integer", "number", "boolean", "null", "object", "array"], 0..7),
        parts in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", "\"", "a", ":", ",", "true", "fal", "se", "null", "1", "-", ".5", "e9", " ", "\n", "\u{a0}"]), 0..6),
    ) {
        let text = parts.concat();
        let tools = [json!({"name": "f", "parameters": {"properties": {"x": {"type": types}}}})];
        let reply = format!("<tool_call>f<arg_key>x</arg_key><arg_value>{text}</arg_value></tool_call>");
        for chunks in [vec![reply.clone()], letters(&reply)] {
            let mut parser = ReplyParser::new(false).with_tools(&tools);
            let pieces = joined(chunks.iter().flat_map(|chunk| parser.push(chunk)).collect());
            let [_, ReplyPiece::ToolCallPiece(json), ReplyPiece::ToolCall(call)] = &pieces[..] else { panic!("{pieces:?}") };
            let read: Value = serde_json::from_str(json).unwrap();
            prop_assert_eq!(&read, &call.function.arguments, "{:?}: {:?}", types, text);
        }
    }

    #[test]
    fn cuts_do_not_matter(
        parts in prop::collection::vec(prop::sample::select(vec![
            "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<think>", "</think>",
            "<tool_call>weather<arg_key>days</arg_key><arg_value>", "</arg_value></tool_call>", "<tool_call>bare",
            "<tool_call>bare</tool_call>", "weather", "days", "5", "<", "</", "<tool_", "<arg", ">", " ", "\n", "é"]), 0..14),
        places in places(),
        inside: bool,
    ) {
        let reply = parts.concat();
        let whole = parse(inside, &[&reply]);
        prop_assert_eq!(parse(inside, &cut(&reply, &places)), whole.clone());
        prop_assert_eq!(parse(inside, &letters(&reply)), whole.clone());
        // Nothing is lost except the tags of calls, and the blanks next to them.
        let words = |text: &str| text.chars().filter(|c| *c == 'é').count();
        let told: usize = whole.iter().map(|piece| match piece {
            ReplyPiece::Text(text) | ReplyPiece::Thinking(text) => words(text),
            ReplyPiece::ToolCallFailed { text, .. } => words(text),
            ReplyPiece::ToolCall(call) => words(&call.function.name) + words(&call.function.arguments.to_string()),
            other => panic!("{other:?}"),
        }).sum();
        let repeated = whole.iter().any(|piece| matches!(piece, ReplyPiece::ToolCall(_)));
        prop_assert!(told == words(&reply) || repeated && told <= words(&reply));
    }
}
