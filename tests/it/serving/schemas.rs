//! Tests schemas that are made to crash the server: at most they end the process that compiles them first, while other
//! clients are answered.

use super::{Answer, QUESTION, Serving, question, shared};
use serde_json::{Map, Value, json};
use std::thread::scope;

fn properties(count: usize) -> Value {
    let named: Map<String, Value> = (0..count).map(|number| (format!("p{number}"), json!({}))).collect();
    json!({"type": "object", "properties": named})
}

/// Patterns that no other request has.
fn patterns(count: usize, seed: usize) -> Value {
    let pattern = |letter: char| json!({"pattern": format!(".*{letter}.{{{}}}", 15 + seed)});
    json!({"allOf": ('a'..).take(count).map(pattern).collect::<Vec<_>>()})
}

/// A request for an answer with a schema, for each interface.
pub fn asking(schema: &Value) -> [(&'static str, Value); 4] {
    let messages = question()["messages"].clone();
    let format = json!({"type": "json_schema", "name": "it", "schema": schema});
    [
        ("/v1/chat/completions", json!({"messages": messages, "json_schema": schema, "max_tokens": 4})),
        (
            "/v1/chat/completions",
            json!({"messages": messages, "response_format": {"type": "json_schema", "json_schema": {"schema": schema}}, "max_tokens": 4}),
        ),
        ("/v1/responses", json!({"input": QUESTION, "text": {"format": format}, "max_output_tokens": 4})),
        ("/v1/messages", json!({"messages": messages, "max_tokens": 9, "output_config": {"format": format}})),
    ]
}

/// The same with a function that has the schema.
fn calling(schema: &Value) -> [(&'static str, Value); 3] {
    let messages = question()["messages"].clone();
    let function = json!({"name": "dig", "description": "", "parameters": schema});
    let flat = json!({"type": "function", "name": "dig", "parameters": schema});
    let tools = json!([{"type": "function", "function": function}]);
    [
        (
            "/v1/chat/completions",
            json!({"messages": messages, "tools": tools, "tool_choice": "required", "max_tokens": 4}),
        ),
        (
            "/v1/responses",
            json!({"input": QUESTION, "tools": [flat], "tool_choice": "required", "max_output_tokens": 4}),
        ),
        (
            "/v1/messages",
            json!({"messages": messages, "tools": [{"name": "dig", "input_schema": schema}],
                "tool_choice": {"type": "any"}, "max_tokens": 4}),
        ),
    ]
}

pub fn is_alive(serving: &Serving) {
    let mut body = question();
    body["max_tokens"] = 4.into();
    assert_eq!(serving.post("/v1/chat/completions", &body).status, 200);
}

#[test]
fn properties_without_end() {
    let serving = shared();
    let merged = json!({"allOf": (0..8).map(|part| {
        let named: Map<String, Value> = (0..1000).map(|number| (format!("p{part}_{number}"), json!({}))).collect();
        json!({"type": "object", "properties": named})
    }).collect::<Vec<_>>()});
    for schema in [properties(7000), merged] {
        for (path, body) in asking(&schema) {
            let answer = serving.post(path, &body);
            assert!(answer.status == 400 && answer.text().contains("000 properties"), "{path}: {}", answer.text());
        }
    }
    // A function's schema is ignored, but it is also part of the prompt.
    for (path, body) in calling(&properties(2000)) {
        let answer = serving.post(path, &body);
        assert!(answer.status == 400 && answer.text().contains("prompt is too long"), "{path}: {}", answer.text());
    }
    is_alive(&serving);
    let refused = serving.post("/v1/completions", &json!({"prompt": "a", "json_schema": properties(1)}));
    assert_eq!(refused.status, 400, "{}", refused.text());
}

/// Another client is answered meanwhile.
#[test]
fn long_patterns_that_apply_together() {
    let serving = shared();
    let answers: Vec<Answer> = scope(|scope| {
        let hostile = |seed| {
            let serving = &serving;
            scope.spawn(move || {
                let of_answer = asking(&patterns(20, seed)).map(|(path, body)| serving.post(path, &body));
                let [.., (path, body)] = calling(&patterns(12, seed));
                let of_call = serving.post(path, &body);
                assert_eq!(of_call.status, 200, "{}", of_call.text());
                Vec::from(of_answer)
            })
        };
        let hostile: Vec<_> = (0..2).map(hostile).collect();
        let mut good = question();
        good["json_schema"] = json!({"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}});
        good["max_tokens"] = 4.into();
        assert_eq!(serving.post("/v1/chat/completions", &good).status, 200);
        hostile.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    for answer in answers {
        assert!(answer.status == 400 && answer.text().contains("too complex"), "{} {}", answer.status, answer.text());
    }
    is_alive(&serving);
}

/// The same schemas and functions are compiled once, whatever else a request contains.
#[test]
fn long_compiled_schemas_are_cached() {
    let serving = Serving::start(&[]);
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}, "required": ["a"]});
    for (path, body) in
        [&asking(&schema)[0], &calling(&schema)[2], &asking(&json!({"minimum": 2, "maximum": 1, "type": "integer"}))[2]]
    {
        let before = ["schema_processes_total", "schemas_known_total"].map(|name| serving.figure(name));
        let first = serving.post(path, body);
        let mut again = body.clone();
        again["temperature"] = json!(0.5);
        assert_eq!(serving.post(path, &again).status, first.status);
        let after = ["schema_processes_total", "schemas_known_total"].map(|name| serving.figure(name));
        assert_eq!(after, [before[0] + 1, before[1] + 1], "{path}");
    }
    assert_eq!(serving.figure("schema_limits_total"), 0);
    // A request without a schema needs no process.
    let before = serving.figure("schema_processes_total");
    is_alive(&serving);
    let mut none = calling(&properties(2))[0].1.clone();
    none["tool_choice"] = "none".into();
    assert_eq!(serving.post("/v1/chat/completions", &none).status, 200);
    assert_eq!(serving.figure("schema_processes_total"), before);
}
