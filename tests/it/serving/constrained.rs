//! Tests answers with a schema, and required calls, in all interfaces that have them.

use super::{ANSWER, QUESTION, Serving, ask, question, shared, shared_in};
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};

/// A schema that few models would match by themselves.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "animal": {"enum": ["owl", "newt"]},
            "legs": {"type": "integer", "minimum": 2, "maximum": 4},
            "name": {"type": "string", "maxLength": 4},
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
    assert!(object["name"].as_str().unwrap().chars().count() <= 4, "{text}");
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
        let parameters = json!({"type": "object", "properties": {argument: {"enum": [3, 4]}}, "required": [argument]});
        json!({"type": "function", "function": {"name": name, "description": "?", "parameters": parameters}})
    };
    json!([function("ring", "times"), function("sleep", "hours")])
}

/// Biases for the tokens of single letters.
fn biases(serving: &Serving, letters: &[(&str, u32)]) -> Value {
    let bias = |(letter, amount): &(&str, u32)| {
        let tokens = serving.post("/tokenize", &json!({"content": letter})).json()["tokens"].clone();
        assert_eq!(tokens.as_array().map(Vec::len), Some(1), "{letter}: {tokens}");
        json!([tokens[0], amount])
    };
    letters.iter().map(bias).collect()
}

/// Thinking is free, and comes before the answer.
#[test]
fn extended_an_answer_is_valid_against_its_schema() {
    let serving = shared();
    let mut body = with(&of_schema(&schema()));
    body["reasoning_effort"] = "none".into();
    let json = serving.post("/v1/chat/completions", &body).json();
    let choice = &json["choices"][0];
    assert_valid(choice["message"]["content"].as_str().unwrap());
    assert_eq!(choice["finish_reason"], "stop");

    let mut body = with(&of_schema(&schema()));
    body["stream"] = true.into();
    let events = serving.post("/v1/chat/completions", &body).events();
    let pieces = |of: &str| -> Vec<(usize, String)> {
        let pieces =
            events.iter().map(|event| event["choices"][0]["delta"][of].as_str().unwrap_or_default().to_owned());
        pieces.enumerate().filter(|(_, piece)| !piece.is_empty()).collect()
    };
    let (thinking, content) = (pieces("reasoning_content"), pieces("content"));
    assert!(!thinking.is_empty() && !content.is_empty() && thinking.last() < content.first(), "{events:?}");
    assert_valid(&content.into_iter().map(|(_, piece)| piece).collect::<String>());

    // Only an end that is favoured is certain to come.
    let object = with(&json!({
        "response_format": {"type": "json_object"}, "temperature": 1.5, "max_tokens": 60, "reasoning_effort": "none",
        "logit_bias": biases(&serving, &[("\"", 80), ("}", 60)]),
    }));
    let json = serving.post("/v1/chat/completions", &object).json();
    let choice = &json["choices"][0];
    let value: Value = serde_json::from_str(choice["message"]["content"].as_str().unwrap()).unwrap();
    assert!(value.as_object().is_some_and(|object| !object.is_empty()), "{json}");
    assert_eq!(choice["finish_reason"], "stop", "{json}");

    let body = json!({
        "input": QUESTION, "temperature": 0,
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": schema()}},
    });
    let json = serving.post("/v1/responses", &body).json();
    let [reasoning, message] = json["output"].as_array().unwrap().as_slice() else { panic!("{json}") };
    assert_eq!((&reasoning["type"], &message["type"]), (&"reasoning".into(), &"message".into()), "{json}");
    assert!(!reasoning["content"][0]["text"].as_str().unwrap().is_empty(), "{json}");
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

    let fields = json!({"tools": tools(), "tool_choice": "none", "reasoning_effort": "none", "max_tokens": 16});
    let none = serving.post("/v1/chat/completions", &with(&fields)).json();
    let message = &none["choices"][0]["message"];
    assert!(message.get("tool_calls").is_none_or(Value::is_null), "{none}");
    assert!(message["content"].as_str().is_some_and(|text| !text.is_empty()), "{none}");

    // The same functions, so that the prompt has the same beginning.
    let tools = tools();
    let functions = tools.as_array().unwrap().iter().map(|tool| &tool["function"]);
    let flat: Vec<Value> = functions
        .map(|it| json!({"name": it["name"], "description": it["description"], "input_schema": it["parameters"]}))
        .collect();
    let body = json!({
        "max_tokens": 400, "temperature": 0, "messages": [{"role": "user", "content": QUESTION}],
        "tools": flat, "tool_choice": {"type": "tool", "name": "ring"},
    });
    let json = serving.post("/v1/messages", &body).json();
    let call = json["content"].as_array().unwrap().iter().find(|block| block["type"] == "tool_use").unwrap();
    assert!(call["name"] == "ring" && call["input"]["times"].is_i64(), "{json}");
    assert_eq!(json["stop_reason"], "tool_use");
}

/// Constrained replies do not change unconstrained ones that are requested at the same time.
#[test]
fn extended_constrained_answers_beside_free_ones() {
    let serving = shared();
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
        let fields = json!({"response_format": format, "reasoning_effort": "none"});
        let answer = serving.post("/v1/chat/completions", &with(&fields));
        assert_eq!(answer.status, status, "{strict}: {}", answer.text());
        assert_eq!(answer.text().contains("`uniqueItems`"), status == 400, "{}", answer.text());
        let error = &answer.json()["error"];
        let names_remedy = error["message"].as_str().is_some_and(|error| error.ends_with("or set \"strict\": false"));
        assert_eq!((names_remedy, error["param"] == "response_format"), (status == 400, status == 400), "{error}");
    }
    let mut body = with(&of_schema(&schema()));
    (body["temperature"], body["reasoning_effort"]) = (json!(1.5), "none".into());
    for whitespace in [false, true] {
        body["json_whitespace"] = whitespace.into();
        let answer = serving.post("/v1/chat/completions", &body).json();
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
        assert_valid(text);
        assert!(whitespace || text.starts_with("{\"animal\":\""), "{text}");
    }
    let long = "123456789012345678901234567890";
    let mut body = with(&of_schema(&json!({"const": "number"})));
    body["reasoning_effort"] = "none".into();
    let text = body.to_string().replace("\"number\"", long);
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

/// A server that closes all objects.
fn closing() -> Arc<Serving> {
    static CLOSING: OnceLock<Arc<Serving>> = OnceLock::new();
    shared_in(&CLOSING, &["--json-closed"])
}

/// Objects are closed by `strict`, in the interfaces of Anthropic, Ollama and llama.cpp, and by `--json-closed`.
#[test]
fn extended_strict_closes_the_objects_of_a_schema() {
    let (serving, closing) = (shared(), closing());
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
    // As in llama.cpp and in Ollama.
    let own = with(&json!({"json_schema": needs_others(), "max_tokens": 2}));
    assert!(is_impossible(&serving, "/v1/chat/completions", &own));
    let ollama = json!({"format": needs_others(), "options": {"num_predict": 2}, "stream": false});
    assert!(is_impossible(&serving, "/api/chat", &with(&ollama)));
    let question = json!({"prompt": QUESTION, "format": needs_others(), "stream": false});
    assert!(is_impossible(&serving, "/api/generate", &question));
}

/// A request of `path` that has to call a function, whose argument is an object with a number, or that has no
/// arguments. The model would continue an object and begin an argument wherever it may.
fn calling(serving: &Serving, path: &str, strict: &Value, has_arguments: bool) -> Value {
    let at = json!({"type": "object", "properties": {"hour": {"const": 7}}, "required": ["hour"]});
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
        "max_tokens": 32, "max_output_tokens": 32, "chat_template_kwargs": {"enable_thinking": false}});
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
fn long_strict_closes_the_objects_of_arguments() {
    let (serving, closing) = (shared(), closing());
    let is_closed = |call: &Value| call["at"].as_object().is_some_and(|at| at.len() == 1 && at["hour"].is_u64());
    for path in ["/v1/chat/completions", "/v1/responses", "/v1/messages"] {
        for (serving, strict, closed) in
            [(&*serving, json!(true), true), (&*serving, json!(false), false), (&*closing, Value::Null, true)]
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
fn extended_a_function_without_parameters_takes_no_arguments() {
    for path in ["/v1/chat/completions", "/v1/responses", "/v1/messages"] {
        assert_eq!(calling(&shared(), path, &Value::Null, false), json!({}), "{path}");
    }
}
