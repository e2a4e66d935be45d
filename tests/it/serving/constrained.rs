//! Tests answers with a schema, and required calls, in all interfaces that have them.

use super::{ANSWER, QUESTION, Serving, ask, question, shared};
use serde_json::{Value, json};

/// A schema that few models would match by themselves.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "animal": {"enum": ["owl", "newt"]},
            "legs": {"type": "integer", "minimum": 2, "maximum": 4},
            "name": {"type": "string", "maxLength": 12},
        },
        "required": ["animal", "legs", "name"],
        "additionalProperties": false,
    })
}

fn assert_valid(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
    let object = value.as_object().unwrap();
    assert_eq!(object.len(), 3, "{text}");
    assert!(["owl", "newt"].contains(&object["animal"].as_str().unwrap()), "{text}");
    assert!((2..=4).contains(&object["legs"].as_i64().unwrap()), "{text}");
    assert!(object["name"].as_str().unwrap().chars().count() <= 12, "{text}");
}

/// A question with more fields.
fn with(fields: &Value) -> Value {
    let mut body = question();
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

fn of_schema(schema: &Value) -> Value {
    json!({"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "strict": true, "schema": schema}}})
}

/// A number with bounds, because this model writes digits forever.
fn few() -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": 12})
}

/// Functions that have nothing to do with the question.
fn tools() -> Value {
    let function = |name: &str, argument: &str| {
        let parameters = json!({"type": "object", "properties": {argument: few()}, "required": [argument]});
        json!({"type": "function", "function": {"name": name, "description": "?", "parameters": parameters}})
    };
    json!([function("ring", "times"), function("sleep", "hours")])
}

#[test]
fn extended_an_answer_is_valid_against_its_schema() {
    let serving = shared();
    let json = serving.post("/v1/chat/completions", &with(&of_schema(&schema()))).json();
    let choice = &json["choices"][0];
    assert_valid(choice["message"]["content"].as_str().unwrap());
    assert_eq!(choice["finish_reason"], "stop");
    assert!(!choice["message"]["reasoning_content"].as_str().unwrap().is_empty(), "thinking is free: {json}");

    let mut body = with(&of_schema(&schema()));
    body["stream"] = true.into();
    let events = serving.post("/v1/chat/completions", &body).events();
    let pieces = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
    assert_valid(&pieces.collect::<String>());

    let object = with(&json!({"response_format": {"type": "json_object"}, "temperature": 1.5, "max_tokens": 400}));
    let json = serving.post("/v1/chat/completions", &object).json();
    let choice = &json["choices"][0];
    let text = choice["message"]["content"].as_str().unwrap();
    assert!(choice["finish_reason"] == "length" || serde_json::from_str::<Value>(text).unwrap().is_object(), "{json}");

    let body = json!({
        "input": QUESTION, "temperature": 0,
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": schema()}},
    });
    let json = serving.post("/v1/responses", &body).json();
    let message = json["output"].as_array().unwrap().iter().find(|item| item["type"] == "message").unwrap();
    assert_valid(message["content"][0]["text"].as_str().unwrap());
}

/// Impossible schemas are refused before anything is computed, with the location of the error.
#[test]
fn schemas_without_values_are_refused() {
    let impossible = json!({"type": "object", "properties": {"legs": {"type": "integer", "minimum": 5, "maximum": 4}},
        "required": ["legs"]});
    let unknown = json!({"type": "object", "properties": {"legs": {"$ref": "https://example.com/legs"}}});
    let named = json!({"type": "function", "function": {"name": "swim"}});
    let cases = [
        (of_schema(&impossible), "#/properties/legs"),
        (of_schema(&unknown), "legs"),
        (json!({"tool_choice": "required"}), "functions"),
        (json!({"tools": tools(), "tool_choice": named}), "swim"),
    ];
    for (fields, words) in cases {
        let answer = shared().post("/v1/chat/completions", &with(&fields));
        let message = answer.json()["error"]["message"].to_string();
        assert!(answer.status == 400 && message.contains(words), "{fields}: {} {message}", answer.status);
    }
}

#[test]
fn extended_required_calls_are_made() {
    let serving = shared();
    let any = serving.post("/v1/chat/completions", &with(&json!({"tools": tools(), "tool_choice": "required"}))).json();
    let choice = &any["choices"][0];
    let call = &choice["message"]["tool_calls"][0]["function"];
    assert!(["ring", "sleep"].contains(&call["name"].as_str().unwrap()), "{any}");
    assert_eq!(choice["finish_reason"], "tool_calls");

    let named = json!({"tools": tools(), "tool_choice": {"type": "function", "function": {"name": "sleep"}}});
    let mut body = with(&named);
    body["stream"] = true.into();
    let events = serving.post("/v1/chat/completions", &body).events();
    let deltas = || events.iter().map(|event| &event["choices"][0]["delta"]["tool_calls"][0]["function"]);
    let name: String = deltas().filter_map(|function| function["name"].as_str()).collect();
    let arguments: String = deltas().filter_map(|function| function["arguments"].as_str()).collect();
    assert_eq!(name, "sleep");
    assert!(serde_json::from_str::<Value>(&arguments).unwrap()["hours"].is_i64(), "{arguments}");

    let none = serving.post("/v1/chat/completions", &with(&json!({"tools": tools(), "tool_choice": "none"}))).json();
    assert!(none["choices"][0]["message"].get("tool_calls").is_none_or(Value::is_null), "{none}");

    let body = json!({
        "max_tokens": 400, "temperature": 0, "messages": [{"role": "user", "content": QUESTION}],
        "tools": [{"name": "ring", "input_schema":
            {"type": "object", "properties": {"times": few()}, "required": ["times"]}}],
        "tool_choice": {"type": "any"},
    });
    let json = serving.post("/v1/messages", &body).json();
    let call = json["content"].as_array().unwrap().iter().find(|block| block["type"] == "tool_use").unwrap();
    assert!(call["name"] == "ring" && call["input"]["times"].is_i64(), "{json}");
    assert_eq!(json["stop_reason"], "tool_use");
}

/// Constrained replies take steps together with unconstrained ones, and do not change these.
#[test]
fn extended_constrained_answers_beside_free_ones() {
    let serving = Serving::start(&[]);
    std::thread::scope(|scope| {
        for constrained in [true, false, true, false] {
            let serving = &serving;
            scope.spawn(move || {
                let body = if constrained { with(&of_schema(&schema())) } else { question() };
                let json = serving.post("/v1/chat/completions", &body).json();
                let text = json["choices"][0]["message"]["content"].as_str().unwrap();
                if constrained { assert_valid(text) } else { assert_eq!(text.trim(), ANSWER) }
            });
        }
    });
}

/// `strict` decides about unsupported keywords, `json_whitespace` about blanks, and numbers keep all of their digits.
#[test]
fn extended_options_of_a_schema() {
    let serving = shared();
    let set = json!({"type": "array", "uniqueItems": true, "items": few(), "minItems": 2, "maxItems": 3});
    for (strict, status) in [(json!(true), 400), (Value::Null, 400), (json!(false), 200)] {
        let format = json!({"type": "json_schema", "json_schema": {"name": "it", "strict": strict, "schema": set}});
        let answer = serving.post("/v1/chat/completions", &with(&json!({"response_format": format})));
        assert_eq!(answer.status, status, "{strict}: {}", answer.text());
        assert_eq!(answer.text().contains("`uniqueItems`"), status == 400, "{}", answer.text());
    }
    let mut body = with(&of_schema(&schema()));
    body["temperature"] = json!(1.5);
    for whitespace in [false, true] {
        body["json_whitespace"] = whitespace.into();
        let answer = serving.post("/v1/chat/completions", &body).json();
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
        assert_valid(text);
        assert!(whitespace || text.starts_with("{\"animal\":\""), "{text}");
    }
    let long = "123456789012345678901234567890";
    let text = with(&of_schema(&json!({"const": "number"}))).to_string().replace("\"number\"", long);
    let json = [("content-type", "application/json")];
    let answer = ask(&serving.address, "POST", "/v1/chat/completions", &json, text.as_bytes());
    assert_eq!(answer.json()["choices"][0]["message"]["content"], long, "{}", answer.text());
}
