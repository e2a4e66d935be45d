//! Schemas, expressions and grammars that are made to exhaust the stack, memory or time are refused with a reason,
//! whatever the caller's stack. Those just within the limits work.

use super::super::{chat, text};
use super::calls::called_by;
use std::time::{Duration, Instant};
use wglm::serde_json::{Map, Value, json};
use wglm::{Constraint, Error, Event, Result};

/// The most time for any of these. Most take milliseconds.
const SOON: Duration = Duration::from_secs(60);

/// Runs something on a thread with a very small stack.
fn with_little_stack<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(192 << 10).spawn_scoped(scope, run);
        thread.unwrap().join().unwrap()
    })
}

fn refused(make: impl FnOnce() -> Result<Constraint> + Send, words: &str) -> String {
    let since = Instant::now();
    let error = match with_little_stack(make) {
        Err(error @ Error::Constraint { .. }) => error.to_string(),
        other => panic!("{words}: {other:?}"),
    };
    assert!(error.contains(words), "{error}");
    assert!(since.elapsed() < SOON, "{words}: {:?}", since.elapsed());
    error
}

fn properties(from: usize, count: usize, of: &Value) -> Value {
    let named: Map<String, Value> = (from..from + count).map(|number| (format!("p{number}"), of.clone())).collect();
    json!({"type": "object", "properties": named})
}

fn patterns(count: usize) -> Value {
    let pattern = |letter: char| json!({"type": "string", "pattern": format!(".*{letter}.{{15}}")});
    json!({"allOf": ('a'..).take(count).map(pattern).collect::<Vec<_>>()})
}

#[test]
fn schemas() {
    let of = |schema: Value| move || Constraint::json_schema(schema);
    refused(of(properties(0, 7000, &json!({}))), "#: too large: 7000 properties");
    let merged: Vec<Value> = (0..8).map(|part| properties(1000 * part, 1000, &json!({}))).collect();
    refused(of(json!({"properties": {"a": {"allOf": merged}}})), "#/properties/a: too large: 8000 properties");
    let all: Vec<String> = (0..7000).map(|number| number.to_string()).collect();
    refused(of(json!({"type": "object", "required": all})), "7000 properties");
    refused(of(json!({"const": properties(0, 7000, &json!(1))["properties"]})), "7000 properties");
    refused(of(patterns(20)), "too complex");
    let named: Vec<Value> = (0..20).map(|at| json!({"properties": {"a": patterns(20)["allOf"][at]}})).collect();
    refused(of(json!({"allOf": named})), "#/properties/a: too complex");
    // Each alternative is merged with adjacent keywords: 2.4 GB in four seconds, with 3000 of each.
    let any: Vec<Value> = (0..3000).map(|most| json!({"type": "object", "maxProperties": most})).collect();
    let values: Vec<String> = (0..3000).map(|value| value.to_string()).collect();
    let beside = json!({"type": "object", "properties": {"a": {"enum": values}}});
    refused(of(json!({"allOf": [{"anyOf": any}, beside]})), "alternatives");
    let mut counted = properties(0, 500, &json!({"type": "null"}));
    counted["minProperties"] = 1.into();
    counted["additionalProperties"] = false.into();
    refused(of(counted), "minProperties");
    refused(of(json!({"type": "string", "pattern": "a?".repeat(40_000)})), "80000 bytes");
    refused(of(json!({"type": "object", "x-guidance": {"whitespace_pattern": " ".repeat(70_000)}})), "70000 bytes");
    refused(of(json!({"type": "string", "description": "a".repeat(5 << 20)})), "bytes of names and strings");
}

#[test]
fn expressions_and_grammars() {
    refused(|| Constraint::regex(&"(a|b)?".repeat(20_000)), "120000 bytes");
    refused(|| Constraint::regex(&r"[\pLa]".repeat(5000)), "backslashes");
    let met: Vec<String> = ('a'..).take(20).map(|letter| format!("/.*{letter}.{{15}}/")).collect();
    let grammar = format!("start: A\nA: {}", met.join(" & "));
    refused(|| Constraint::lark(&grammar), "too complex");
    // The same through references.
    let named: String = met.iter().enumerate().map(|(at, of)| format!("A{at}: {of} & A{}\n", at + 1)).collect();
    refused(|| Constraint::lark(&format!("start: A0\n{named}A20: \"a\"")), "too complex");
    let chain: String = (0..15_000)
        .map(|rule| format!("b{rule}: b{}{}\n", rule + 1, if rule == 0 { " & \"x\"" } else { "" }))
        .collect();
    refused(|| Constraint::lark(&format!("start: \"a\"\n{chain}b15000: \"y\"\n")), "too complex");
    refused(|| Constraint::lark(&format!("start: \"{}\"", "a".repeat(300_000))), "bytes");
    let nested = format!("start: %json {}", properties(0, 7000, &json!({})));
    refused(|| Constraint::lark(&nested), "7000 properties");
}

/// What is just within the limits is compiled from any stack, and answers match it.
#[test]
fn extended_just_within() {
    let since = Instant::now();
    let merged: Vec<Value> = (0..8).map(|part| properties(125 * part, 125, &json!({}))).collect();
    let schemas = [properties(0, 1000, &json!({"type": "string"})), json!({"allOf": merged})];
    for schema in schemas {
        let answer = with_little_stack(|| {
            let mut chat = chat();
            chat.options.constraint = Some(Constraint::json_schema(schema).unwrap());
            chat.options.max_tokens = Some(12);
            let events: Vec<_> = chat.send("What is it?").unwrap().collect::<Result<_>>().unwrap();
            text(&events)
        });
        assert!(answer.is_empty() || answer.trim_start().starts_with('{'), "{answer}");
    }
    Constraint::json_schema(patterns(2)).unwrap();
    Constraint::regex(&"(a|b)?".repeat(1000)).unwrap();
    Constraint::lark("start: A\nA: /.*a.{15}/ & /.*b.{9}/ & /[a-z]{1,40}/").unwrap();
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
}

/// A function whose schema is too large or too complex is called with any arguments.
#[test]
fn extended_functions() {
    let tool = |name: &str, schema: &Value| {
        let schema = json!({"type": "object", "properties": {"a": schema}, "required": ["a"]});
        json!({"type": "function", "function": {"name": name, "description": "", "parameters": schema}})
    };
    let since = Instant::now();
    let short = |letter: char| json!({"pattern": format!(".*{letter}.{{9}}")});
    let met = json!({"allOf": ('a'..).take(12).map(short).collect::<Vec<_>>()});
    for schema in [met, json!({"pattern": "(?:[a-b]?|[a-c]?|[a-d]?){1,90}".repeat(3)})] {
        let (events, _) = called_by(&[tool("dig", &schema)], "dig", 40, 1);
        let started = |event: &Event| matches!(event, Event::ToolCallStart { name, .. } if name == "dig");
        assert!(events.iter().any(started), "{events:?}");
    }
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
}

/// An expression that needs more and more memory ends its reply with a reason, and not the process.
#[test]
fn extended_memory_while_a_reply_is_written() {
    let mut chat = chat();
    chat.options.constraint = Some(Constraint::regex(r"(?:[\p{L}\p{N}]+[-. ,]?){1,20000}").unwrap());
    chat.options.max_tokens = Some(400);
    chat.options.sampling.temperature = 2.0;
    let last = chat.send("What is it?").unwrap().last().unwrap();
    if let Err(error) = last {
        assert!(error.to_string().contains("too"), "{error}");
    }
}
