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

/// An object that is impossible once it is closed: it has one property and needs two.
fn needs_others() -> Value {
    json!({"type": "object", "properties": {"legs": few()}, "required": ["legs"], "minProperties": 2})
}

/// Whether `path` refuses this body because no answer is possible.
fn is_impossible(serving: &Serving, path: &str, body: &Value) -> bool {
    let answer = serving.post(path, body);
    assert!([200, 400].contains(&answer.status), "{path} {body}: {}", answer.text());
    assert!(answer.status == 200 || answer.text().contains("no value is valid"), "{path} {body}: {}", answer.text());
    answer.status == 400
}

/// Objects are closed by `strict`, in Anthropic's interface and by `--json-closed`.
#[test]
fn strict_closes_the_objects_of_a_schema() {
    let (serving, closing) = (shared(), Serving::start(&["--json-closed"]));
    for strict in [json!(true), json!(false), Value::Null] {
        let format = json!({"type": "json_schema", "name": "it", "strict": strict, "schema": needs_others()});
        let chat = json!({"response_format": {"type": "json_schema", "json_schema": format}, "max_tokens": 2});
        let responses = json!({"input": QUESTION, "text": {"format": format}, "max_output_tokens": 2});
        for (path, body) in [("/v1/chat/completions", with(&chat)), ("/v1/responses", responses)] {
            assert_eq!(is_impossible(&serving, path, &body), strict == true, "{path} {strict}");
            assert!(is_impossible(&closing, path, &body), "{path} {strict}");
        }
    }
    let format = json!({"type": "json_schema", "schema": needs_others()});
    assert!(is_impossible(
        &serving,
        "/v1/messages",
        &with(&json!({"max_tokens": 2, "output_config": {"format": format}}))
    ));
    let own = with(&json!({"json_schema": needs_others(), "max_tokens": 2}));
    assert!(!is_impossible(&serving, "/v1/chat/completions", &own));
    assert!(is_impossible(&closing, "/v1/chat/completions", &own));
}

/// A request of `path` that has to call a function, whose argument is an object with a number, or that has no
/// arguments. The model would continue an object and begin an argument wherever it may.
fn calling(serving: &Serving, path: &str, strict: &Value, has_arguments: bool) -> Value {
    let at = json!({"type": "object", "properties": {"hour": few()}, "required": ["hour"]});
    let parameters = json!({"type": "object", "properties": {"at": at}, "required": ["at"]});
    let parameters = if has_arguments { parameters } else { Value::Null };
    let choice = if path == "/v1/messages" { json!({"type": "any"}) } else { json!("required") };
    let tool = match path {
        "/v1/chat/completions" => {
            json!({"type": "function", "function": {"name": "ring", "strict": strict, "parameters": parameters}})
        }
        "/v1/responses" => json!({"type": "function", "name": "ring", "strict": strict, "parameters": parameters}),
        _ => json!({"name": "ring", "strict": strict, "input_schema": parameters}),
    };
    let tokens = serving.post("/tokenize", &json!({"content": ",\"<arg_key>"})).json()["tokens"].clone();
    let comma = serving.post("/tokenize", &json!({"content": ","})).json()["tokens"].clone();
    let wanted = tokens.as_array().unwrap().iter().chain(comma.as_array().unwrap());
    let bias: Vec<Value> = wanted.map(|token| json!([token, 60])).collect();
    let body = json!({"input": QUESTION, "tools": [tool], "tool_choice": choice, "logit_bias": bias,
        "max_tokens": 40, "max_output_tokens": 40, "chat_template_kwargs": {"enable_thinking": false}});
    let answer = serving.post(path, &with(&body)).json();
    let call = match path {
        "/v1/chat/completions" => &answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"],
        "/v1/responses" => &answer["output"][0]["arguments"],
        _ => &answer["content"][0]["input"],
    };
    match call.as_str() {
        Some(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        None => call.clone(),
    }
}

#[test]
fn strict_closes_the_objects_of_arguments() {
    let (serving, closing) = (shared(), Serving::start(&["--json-closed"]));
    let is_closed = |call: &Value| call["at"].as_object().is_some_and(|at| at.len() == 1 && at["hour"].is_u64());
    for path in ["/v1/chat/completions", "/v1/responses", "/v1/messages"] {
        for (serving, strict, closed) in
            [(&*serving, json!(true), true), (&*serving, json!(false), false), (&closing, Value::Null, true)]
        {
            let call = calling(serving, path, &strict, true);
            assert_eq!(is_closed(&call), closed, "{path} {strict}: {call}");
        }
    }
    // A response repeats what was sent.
    let tool = json!({"type": "function", "name": "ring", "strict": false});
    let body = json!({"input": QUESTION, "tools": [tool], "max_output_tokens": 1});
    let json = closing.post("/v1/responses", &body).json();
    assert_eq!(json["tools"][0]["strict"], false, "{json}");
}

#[test]
fn a_function_without_parameters_takes_no_arguments() {
    for path in ["/v1/chat/completions", "/v1/responses", "/v1/messages"] {
        assert_eq!(calling(&shared(), path, &Value::Null, false), json!({}), "{path}");
    }
}
