//! Tests how calls of functions are streamed: as they are written, in the form of each interface, with the same result
//! as without a stream.

use super::{QUESTION, shared};
use serde_json::{Value, json};

/// A function with an argument whose type is a string, and one that is held until it is whole.
fn parameters() -> Value {
    let properties = json!({
        "note": {"type": "string", "minLength": 12, "maxLength": 24},
        "numbers": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 999}, "minItems": 8, "maxItems": 8},
    });
    json!({"type": "object", "properties": properties, "required": ["note", "numbers"]})
}

/// A request of `path` that has to call the function, and whose reply has at most this many tokens.
fn body(path: &str, most: usize) -> Value {
    let (question, name) = (json!([{"role": "user", "content": QUESTION}]), "keep");
    let mut body = match path {
        "/v1/chat/completions" => json!({
            "messages": question,
            "tools": [{"type": "function", "function": {"name": name, "parameters": parameters()}}],
            "tool_choice": "required",
        }),
        "/v1/responses" => json!({
            "input": question,
            "tools": [{"type": "function", "name": name, "parameters": parameters()}],
            "tool_choice": "required",
            "max_output_tokens": most,
        }),
        _ => json!({
            "messages": question,
            "tools": [{"name": name, "input_schema": parameters()}],
            "tool_choice": {"type": "any"},
        }),
    };
    (body["max_tokens"], body["temperature"], body["seed"]) = (most.into(), 0.into(), 1.into());
    body["chat_template_kwargs"] = json!({"enable_thinking": false});
    body
}

/// The call in an answer without a stream, why the reply ended, and its text.
fn whole(path: &str, answer: &Value) -> (Option<Value>, Value, String) {
    let items = |list: &Value, kind: &str| -> Vec<Value> {
        let items = list.as_array().into_iter().flatten();
        items.filter(|item| item["type"] == kind).cloned().collect()
    };
    let text = |list: Vec<Value>, of: &str| list.iter().map(|item| item[of].to_string()).collect();
    match path {
        "/v1/chat/completions" => {
            let choice = &answer["choices"][0];
            let text = choice["message"]["content"].as_str().unwrap_or_default().to_owned();
            let call = &choice["message"]["tool_calls"][0];
            let call = call.is_object().then(|| json!([call["function"]["name"], call["function"]["arguments"]]));
            (call, choice["finish_reason"].clone(), text)
        }
        "/v1/responses" => {
            let calls = items(&answer["output"], "function_call");
            let call = calls.first().map(|call| json!([call["name"], call["arguments"], call["status"]]));
            (call, answer["status"].clone(), text(items(&answer["output"], "message"), "content"))
        }
        _ => {
            let calls = items(&answer["content"], "tool_use");
            let call = calls.first().map(|call| json!([call["name"], call["input"]]));
            (call, answer["stop_reason"].clone(), text(items(&answer["content"], "text"), "text"))
        }
    }
}

/// The events of a stream that are pieces of arguments.
fn pieces(path: &str, events: &[Value]) -> Vec<String> {
    let piece = |event: &Value| {
        let piece = match path {
            "/v1/chat/completions" => &event["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"],
            "/v1/responses" if event["type"] == "response.function_call_arguments.delta" => &event["delta"],
            "/v1/responses" => &Value::Null,
            _ => &event["delta"]["partial_json"],
        };
        piece.as_str().filter(|piece| !piece.is_empty()).map(str::to_owned)
    };
    events.iter().filter_map(piece).collect()
}

/// Why the reply of a stream ended.
fn ends(path: &str, events: &[Value]) -> Value {
    let find = |of: &dyn Fn(&Value) -> &Value| events.iter().map(of).find(|found| !found.is_null()).cloned();
    let end = match path {
        "/v1/chat/completions" => find(&|event| &event["choices"][0]["finish_reason"]),
        "/v1/responses" => {
            find(&|event| if event["type"] == "response.created" { &Value::Null } else { &event["response"]["usage"] })
                .and_then(|_| events.last().map(|last| last["response"]["status"].clone()))
        }
        _ => {
            find(&|event| if event["type"] == "message_delta" { &event["delta"]["stop_reason"] } else { &Value::Null })
        }
    };
    end.unwrap_or_default()
}

const PATHS: [&str; 3] = ["/v1/chat/completions", "/v1/responses", "/v1/messages"];

#[test]
fn extended_pieces_of_a_call_are_the_call() {
    let serving = shared();
    for path in PATHS {
        let mut body = body(path, 400);
        let answer = serving.post(path, &body).json();
        let (call, reason, _) = whole(path, &answer);
        let call = call.unwrap_or_else(|| panic!("{path}: {answer}"));
        body["stream"] = true.into();
        let events = serving.post(path, &body).events();
        let pieces = pieces(path, &events);
        let json = pieces.concat();
        let read: Value = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{path}: {error}: {json}"));
        assert_eq!(read["numbers"].as_array().unwrap().len(), 8, "{path}: {json}");
        assert!(pieces.len() > 4, "{path}: {pieces:?}");
        match path {
            "/v1/messages" => assert_eq!(call[1], read, "{path}"),
            _ => assert_eq!(call[1], json, "{path}"),
        }
        assert_eq!(ends(path, &events), reason, "{path}");
    }
}

/// A limit that cuts a call leaves the beginning of the call, and nothing of it as text. The limits are within the name
/// of the function, after the name of its first argument, within that argument, and after it. Each interface also has
/// streams for some of them.
#[test]
fn long_a_call_that_is_cut_off_is_a_part_of_a_call() {
    let serving = shared();
    let (mut begun, mut notes) = (0, 0);
    for (path, streams) in PATHS.into_iter().zip([[2, 30], [8, 20], [20, 30]]) {
        for most in [2, 8, 20, 30] {
            let body = body(path, most);
            let answer = serving.post(path, &body).json();
            let (call, reason, text) = whole(path, &answer);
            let wanted = match path {
                "/v1/chat/completions" => "length",
                "/v1/responses" => "incomplete",
                _ => "max_tokens",
            };
            assert_eq!(reason, wanted, "{path}, {most}: {answer}");
            assert!(!text.contains("tool_call") && !text.contains("keep"), "{path}, {most}: {answer}");
            let streamed = streams.contains(&most).then(|| {
                let mut body = body.clone();
                body["stream"] = true.into();
                let streamed = serving.post(path, &body);
                assert!(!streamed.text().contains("<tool_call"), "{path}, {most}: {}", streamed.text());
                let events = streamed.events();
                assert_eq!(ends(path, &events), wanted, "{path}, {most}");
                pieces(path, &events).concat()
            });
            let Some(call) = call else { continue };
            begun += 1;
            let warns = |warning: &Value| warning.as_str().is_some_and(|text| text.contains("incomplete"));
            assert!(answer["warnings"].as_array().is_some_and(|warnings| warnings.iter().any(warns)), "{answer}");
            // The same arguments as in a stream; Anthropic's are JSON only there.
            let arguments = streamed.or_else(|| call[1].as_str().map(str::to_owned));
            let is_cut = |json: &String| json.starts_with('{') && serde_json::from_str::<Value>(json).is_err();
            assert!(arguments.iter().all(is_cut), "{path}, {most}: {arguments:?}");
            match path {
                "/v1/chat/completions" => assert_eq!(call, json!(["keep", arguments.unwrap()])),
                "/v1/responses" => assert_eq!(call, json!(["keep", arguments.unwrap(), "incomplete"])),
                _ => {
                    assert!(call[1].is_object() && call[1].get("numbers").is_none(), "{call}");
                    if let Some(json) = arguments {
                        let has_note = json.matches('"').count() >= 4 && !json.contains('\\');
                        assert!(call[1]["note"].is_string() || !has_note, "{json}: {call}");
                        notes += usize::from(has_note);
                    }
                }
            }
            if most < 20 {
                continue;
            }
            let next = serving.post(path, &with_result(path, &body, &answer));
            assert_eq!(next.status, 200, "{path}, {most}: {}", next.text());
        }
    }
    assert!(begun >= 6 && notes > 0, "{begun} calls had begun, {notes} with a note");
}

/// A request of `path` with a function.
fn rain(path: &str) -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let name = "rain";
    let tool = match path {
        "/v1/chat/completions" => json!({"type": "function", "function": {"name": name, "parameters": parameters}}),
        "/v1/responses" => json!({"type": "function", "name": name, "parameters": parameters}),
        _ => json!({"name": name, "input_schema": parameters}),
    };
    let question = json!([{"role": "user", "content": QUESTION}]);
    json!({
        "messages": question, "input": question, "tools": [tool], "max_tokens": 40, "temperature": 0,
        "chat_template_kwargs": {"enable_thinking": false},
    })
}

/// Clients collect the calls of several replies and conversations.
#[test]
fn extended_no_two_calls_have_the_same_id() {
    let tool = json!({"type": "function", "function": {"name": "ring"}});
    let mut body = json!({"messages": [{"role": "user", "content": QUESTION}], "tools": [tool], "n": 2,
        "tool_choice": "required", "max_tokens": 60, "temperature": 0, "reasoning_effort": "none"});
    let path = "/v1/chat/completions";
    let ids = |calls: &Value| -> Vec<String> {
        let calls = calls.as_array().into_iter().flatten();
        calls.filter_map(|call| call["id"].as_str().map(str::to_owned)).collect()
    };
    let mut all = Vec::new();
    for _ in 0..2 {
        for choice in shared().post(path, &body).json()["choices"].as_array().unwrap() {
            let given = ids(&choice["message"]["tool_calls"]);
            assert!(!given.is_empty(), "{choice}");
            all.extend(given);
        }
    }
    body["stream"] = true.into();
    let events = shared().post(path, &body).events();
    all.extend(events.iter().flat_map(|event| ids(&event["choices"][0]["delta"]["tool_calls"])));
    assert!(all.len() >= 6 && all.iter().all(|id| id.starts_with("call_") && id.len() == 29), "{all:?}");
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "{all:?}");

    let body = json!({"input": QUESTION, "tools": [{"type": "function", "name": "ring"}], "tool_choice": "required",
        "max_output_tokens": 60, "temperature": 0, "reasoning": {"effort": "none"}, "stream": true});
    let events = shared().post("/v1/responses", &body).events();
    let begun = events.iter().find(|event| event["item"]["type"] == "function_call").unwrap();
    let output = events.last().unwrap()["response"]["output"].as_array().unwrap().clone();
    let call = output.iter().find(|item| item["type"] == "function_call").unwrap();
    assert!(call["call_id"].is_string() && begun["item"]["call_id"] == call["call_id"], "{begun} {call}");
}

/// The request with the answer's message and the result of its call.
fn with_result(path: &str, body: &Value, answer: &Value) -> Value {
    let (mut next, result) = (body.clone(), "It rains.");
    let added = match path {
        "/v1/chat/completions" => {
            let message = &answer["choices"][0]["message"];
            json!([message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": result}])
        }
        "/v1/responses" => {
            let mut items = answer["output"].as_array().unwrap().clone();
            let id = items.iter().find(|item| item["type"] == "function_call").unwrap()["call_id"].clone();
            items.push(json!({"type": "function_call_output", "call_id": id, "output": result}));
            items.into()
        }
        _ => {
            let content = &answer["content"];
            let id = &content.as_array().unwrap().iter().find(|block| block["type"] == "tool_use").unwrap()["id"];
            let result = json!([{"type": "tool_result", "tool_use_id": id, "content": result}]);
            json!([{"role": "assistant", "content": content}, {"role": "user", "content": result}])
        }
    };
    let messages = if path == "/v1/responses" { "input" } else { "messages" };
    next[messages].as_array_mut().unwrap().extend(added.as_array().unwrap().clone());
    for key in ["tool_choice", "logit_bias", "frequency_penalty", "stream"] {
        next.as_object_mut().unwrap().remove(key);
    }
    next["max_tokens"] = 1.into();
    next
}

/// Malformed calls in a history are no reason to refuse a request. The calls of this model are constrained, so it
/// writes none itself.
#[test]
fn arguments_that_are_not_json_are_not_refused() {
    let broken = ["{'city':'Rome'", "{\"a\":1,\"b\":True}", "{\"n\":1 2", "{\"d\":\"\\ud83d\"}", "[1]", "Rome"];
    let call = |arguments| json!({"id": "a", "type": "function", "function": {"name": "rain", "arguments": arguments}});
    let item = |arguments| json!({"type": "function_call", "call_id": "a", "name": "rain", "arguments": arguments});
    let message = json!({"role": "assistant", "tool_calls": broken.map(call)});
    let answer = json!({"choices": [{"message": message}], "output": broken.map(item)});
    for path in &PATHS[..2] {
        let next = shared().post(path, &with_result(path, &rain(path), &answer));
        assert_eq!(next.status, 200, "{path}: {}", next.text());
    }
}
