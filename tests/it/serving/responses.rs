//! Tests `/v1/responses`, with requests like those of Codex.

use super::client::ask;
use super::{ANSWER, QUESTION, THOUGHT, shared};
use serde_json::{Value, json};

/// A body with all fields that Codex sends, some of which have no effect here.
fn body(stream: bool) -> Value {
    json!({
        "model": "gpt",
        "instructions": "You answer questions.",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": QUESTION}]}],
        "tools": [
            {"type": "function", "name": "shell", "description": "Runs", "strict": false,
             "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}},
            {"type": "web_search", "external_web_access": false},
            {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}}],
        "tool_choice": "auto",
        "parallel_tool_calls": true,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": false,
        "stream": stream,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k",
        "client_metadata": {"a": "b"},
        "temperature": 0,
        "max_output_tokens": 200,
    })
}

fn plain(stream: bool) -> Value {
    json!({"input": QUESTION, "temperature": 0, "stream": stream})
}

#[test]
fn extended_a_response_has_thinking_and_a_message() {
    let json = shared().post("/v1/responses", &plain(false)).json();
    assert_eq!((&json["object"], &json["status"]), (&"response".into(), &"completed".into()));
    let [reasoning, message] = json["output"].as_array().unwrap().as_slice() else { panic!("{json}") };
    assert_eq!(reasoning["content"][0]["text"].as_str().unwrap().trim(), THOUGHT);
    assert_eq!(message["content"][0]["text"].as_str().unwrap().trim(), ANSWER);
    let usage = &json["usage"];
    let number = |name: &str| usage[name].as_u64().unwrap();
    assert_eq!(number("total_tokens"), number("input_tokens") + number("output_tokens"));
}

#[test]
fn extended_thinking_can_be_left_out() {
    for (field, value) in
        [("chat_template_kwargs", json!({"enable_thinking": false})), ("reasoning", json!({"effort": "none"}))]
    {
        let mut body = plain(false);
        body[field] = value;
        let json = shared().post("/v1/responses", &body).json();
        let kinds: Vec<&Value> = json["output"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
        assert_eq!(kinds, ["message"], "{field}: {json}");
    }
}

#[test]
fn extended_a_stream_announces_items_and_repeats_them() {
    let events = shared().post("/v1/responses", &plain(true)).events();
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    assert_eq!(
        (events[0]["type"].as_str(), events[1]["type"].as_str()),
        (Some("response.created"), Some("response.in_progress"))
    );
    let text: String = of("response.output_text.delta").iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(text.trim(), ANSWER);
    let items: Vec<&Value> = of("response.output_item.done").iter().map(|event| &event["item"]).collect();
    let end = events.last().unwrap();
    assert_eq!((&end["type"], &end["response"]["output"]), (&"response.completed".into(), &json!(items)));
    assert_eq!(of("response.output_item.added").len(), 2);
    assert!(events.iter().enumerate().all(|(number, event)| event["sequence_number"] == number), "{events:?}");
}

#[test]
fn extended_what_codex_sends_is_understood() {
    let answer = shared().post("/v1/responses", &body(true));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let events = answer.events();
    let end = events.last().unwrap();
    assert!(["response.completed", "response.incomplete"].contains(&end["type"].as_str().unwrap()), "{end}");
    let output = end["response"]["output"].clone();
    // The next request contains the whole output and the result of a function.
    let mut next = body(false);
    let mut input = next["input"].as_array().unwrap().clone();
    input.extend(output.as_array().unwrap().iter().cloned());
    input.push(json!({"type": "function_call", "name": "shell", "arguments": "{\"command\": \"ls\"}", "call_id": "c"}));
    input.push(json!({"type": "function_call_output", "call_id": "c", "output": "a.txt"}));
    (next["input"], next["max_output_tokens"]) = (input.into(), 4.into());
    let json = shared().post("/v1/responses", &next).json();
    assert_eq!(
        (&json["status"], &json["incomplete_details"]["reason"]),
        (&"incomplete".into(), &"max_output_tokens".into()),
        "{json}"
    );
}

#[test]
fn extended_a_response_repeats_its_request() {
    let text = json!({"format": {"type": "json_object"}, "verbosity": "low"});
    let choice = json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "shell"}]});
    let mut body = body(false);
    (body["text"], body["tool_choice"], body["truncation"]) = (text.clone(), choice.clone(), "auto".into());
    (body["text"]["unknown"], body["metadata"]) = ("x".into(), json!({"a": "b"}));
    (body["temperature"], body["top_p"], body["max_output_tokens"]) = (json!(0.7), json!(0.95), 2.into());
    let json = shared().post("/v1/responses", &body).json();
    assert_eq!((&json["text"], &json["tool_choice"], &json["truncation"]), (&text, &choice, &"auto".into()), "{json}");
    assert_eq!(
        (&json["temperature"], &json["top_p"], &json["reasoning"]),
        (&json!(0.7), &json!(0.95), &json!({"effort": "medium", "summary": null}))
    );
    let parameters = &body["tools"][0]["parameters"];
    let tool =
        json!({"type": "function", "name": "shell", "description": "Runs", "parameters": parameters, "strict": false});
    assert_eq!((&json["tools"], &json["metadata"]), (&json!([tool]), &json!({"a": "b"})), "functions alone");
    body["truncation"] = "sometimes".into();
    assert_eq!(shared().post("/v1/responses", &body).status, 400);
}

#[test]
fn extended_a_response_repeats_a_schema_and_the_choice_of_a_function() {
    let schema = json!({"type": "object", "properties": {"legs": {"type": "integer"}}});
    let mut body = body(false);
    body["text"] = json!({"format": {"type": "json_schema", "name": "a", "schema": schema, "strict": true, "x": "y"}});
    body["max_output_tokens"] = 2.into();
    let json = shared().post("/v1/responses", &body).json();
    let format = json!({"type": "json_schema", "name": "a", "description": null, "schema": schema, "strict": true});
    assert_eq!(json["text"], json!({"format": format, "verbosity": null}), "{json}");
    body["text"].take();
    for (choice, repeated) in [
        (json!("required"), json!("required")),
        (json!("none"), json!("none")),
        (json!(null), json!("auto")),
        (json!({"type": "web_search"}), json!("auto")),
        (json!({"name": "shell", "x": "y"}), json!({"type": "function", "name": "shell"})),
    ] {
        body["tool_choice"] = choice;
        let json = shared().post("/v1/responses", &body).json();
        assert_eq!((&json["tool_choice"], &json["text"]["format"]["type"]), (&repeated, &"text".into()), "{json}");
    }
}

#[test]
fn extended_metadata_has_openais_limits() {
    let many = |keys: usize| -> Value { (0..keys).map(|key| (key.to_string(), "x")).collect() };
    for (metadata, status) in [
        (many(16), 200),
        (many(17), 400),
        (json!({"k".repeat(64): "é".repeat(512)}), 200),
        (json!({"k".repeat(65): "x"}), 400),
        (json!({"k": "x".repeat(513)}), 400),
        (json!({"k": 3}), 400),
        (json!(null), 200),
    ] {
        let body = json!({"input": QUESTION, "max_output_tokens": 1, "metadata": metadata});
        let answer = shared().post("/v1/responses", &body);
        assert_eq!(answer.status, status, "{metadata}: {}", answer.text());
    }
}

#[test]
fn extended_thinking_without_content_is_its_summary() {
    let call = json!({"type": "function_call", "name": "add", "arguments": "{}", "call_id": "c"});
    let output = json!({"type": "function_call_output", "call_id": "c", "output": "12"});
    let summary = json!([{"type": "summary_text", "text": "The sum of seven and five is asked for."}]);
    let prompt = |reasoning: Value| {
        let input = json!([{"role": "user", "content": QUESTION}, reasoning, call, output]);
        let json = shared().post("/v1/responses", &json!({"input": input, "max_output_tokens": 1})).json();
        json["usage"]["input_tokens"].as_u64().unwrap()
    };
    let told = prompt(json!({"type": "reasoning", "summary": summary}));
    assert_eq!(prompt(json!({"type": "reasoning", "summary": summary, "content": []})), told);
    assert!(prompt(json!({"type": "reasoning", "summary": [], "content": []})) < told);
}

#[test]
fn a_message_that_was_cut_off_is_incomplete() {
    let mut body = plain(false);
    (body["reasoning"], body["max_output_tokens"]) = (json!({"effort": "none"}), 3.into());
    let json = shared().post("/v1/responses", &body).json();
    let item = &json["output"][0];
    assert_eq!(
        (&item["type"], &item["status"], &json["status"]),
        (&"message".into(), &"incomplete".into(), &"incomplete".into())
    );
    body["max_output_tokens"] = 200.into();
    let json = shared().post("/v1/responses", &body).json();
    assert_eq!((&json["output"][0]["status"], &json["status"]), (&"completed".into(), &"completed".into()), "{json}");
}

#[test]
fn stored_conversations_are_refused() {
    for (field, value) in [
        ("conversation", json!("conv_1")),
        ("conversation", json!({"id": "conv_1"})),
        ("prompt", json!({"id": "pmpt_1"})),
        ("background", json!(true)),
    ] {
        let mut body = plain(false);
        body[field] = value;
        let answer = shared().post("/v1/responses", &body);
        assert!(answer.status == 400 && answer.text().contains("not stored"), "{field}: {}", answer.text());
    }
}

/// The conversation of a kept response is that of a request that sends all of it, in the same tokens.
#[test]
fn a_response_is_continued_by_its_id() {
    let first =
        json!({"input": QUESTION, "instructions": "Be brief.", "temperature": 0, "reasoning": {"effort": "none"}});
    let response = shared().post("/v1/responses", &first).json();
    let (id, text) = (&response["id"], &response["output"][0]["content"][0]["text"]);
    assert_eq!((&response["store"], text.as_str().unwrap().trim()), (&json!(true), ANSWER));
    let path = format!("/v1/responses/{}", id.as_str().unwrap());
    assert_eq!(shared().get(&path).json(), response);

    let next = json!({"input": "And eight?", "previous_response_id": id, "max_output_tokens": 1, "temperature": 0});
    let messages = json!([{"role": "user", "content": QUESTION}, {"role": "assistant", "content": text},
        {"role": "user", "content": "And eight?"}]);
    let whole = json!({"input": messages, "max_output_tokens": 1, "temperature": 0, "store": false});
    let [continued, sent] = [&next, &whole].map(|body| shared().post("/v1/responses", body).json());
    assert_eq!((&continued["previous_response_id"], &sent["store"]), (id, &json!(false)));
    let tokens = |json: &Value| json["usage"]["input_tokens"].as_u64().unwrap();
    assert_eq!(tokens(&continued), tokens(&sent), "without the instructions of the first");
    let counted = shared().post("/v1/responses/input_tokens", &next).json();
    assert_eq!(counted["input_tokens"].as_u64(), Some(tokens(&sent)));
    let unkept = format!("/v1/responses/{}", sent["id"].as_str().unwrap());
    assert_eq!(shared().get(&unkept).status, 404);

    // The response to the continuation is kept with all that came before, in a stream too.
    let third =
        json!({"input": "And nine?", "previous_response_id": continued["id"], "max_output_tokens": 1, "stream": true});
    let events = shared().post("/v1/responses", &third).events();
    let last = &events.last().unwrap()["response"];
    assert!(tokens(last) > tokens(&continued), "{last}");
    assert_eq!(&shared().get(&format!("/v1/responses/{}", last["id"].as_str().unwrap())).json(), last);

    let deleted = ask(&shared().address, "DELETE", &path, &[], b"").json();
    assert_eq!(deleted, json!({"id": id, "object": "response", "deleted": true}));
    let missing = shared().post("/v1/responses", &next);
    let error = &missing.json()["error"];
    assert_eq!((missing.status, &error["code"]), (400, &json!("previous_response_not_found")));
    assert_eq!((error["param"].as_str(), shared().get(&path).status), (Some("previous_response_id"), 404));
}

/// Codex looks for the code only among the events of a stream.
#[test]
fn a_conversation_that_is_too_long_fails_in_the_stream() {
    let mut body = json!({"input": "owl ".repeat(2000), "stream": true, "truncation": "disabled"});
    let answer = shared().post("/v1/responses", &body);
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")));
    let events = answer.events();
    let (first, last) = (&events[0], events.last().unwrap());
    assert_eq!([&first["type"], &last["type"]], ["response.created", "response.failed"]);
    let error = &last["response"]["error"];
    assert_eq!((&last["response"]["status"], &error["code"]), (&json!("failed"), &json!("context_length_exceeded")));
    assert!(error["message"].as_str().unwrap().contains("prompt is too long"), "{error}");
    body["stream"] = false.into();
    let answer = shared().post("/v1/responses", &body);
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &json!("context_length_exceeded")));
    (body["stream"], body["input"]) = (true.into(), json!([{"role": "wizard", "content": "?"}]));
    assert_eq!(shared().post("/v1/responses", &body).status, 400, "other failures have a status of their own");
}

#[test]
fn conversations_are_not_compacted() {
    let answer = shared().post("/v1/responses/compact", &json!({"input": QUESTION}));
    let error = answer.json()["error"]["message"].clone();
    assert_eq!((answer.status, answer.header("allow")), (404, None), "{error}");
    assert!(error.as_str().unwrap().contains("does not compact"), "{error}");
    assert_eq!(shared().post("/v1/responses/resp_1", &json!({})).status, 405);
}

/// Some clients send the ids of stored items in place of the items themselves. The prompt has the same tokens.
#[test]
fn items_are_found_by_their_ids() {
    let user = |text: &str| json!({"role": "user", "content": text});
    let response = shared().post("/v1/responses", &json!({"input": QUESTION, "temperature": 0})).json();
    let items = response["output"].as_array().unwrap().clone();
    assert_eq!(items.iter().map(|item| &item["type"]).collect::<Vec<_>>(), ["reasoning", "message"]);
    let refer = |item: &Value| json!({"type": "item_reference", "id": item["id"]});
    let next = |items: Vec<Value>| {
        let input = [vec![user(QUESTION)], items, vec![user("And eight?")]].concat();
        json!({"input": input, "temperature": 0, "max_output_tokens": 1})
    };
    let referring = next(items.iter().map(refer).collect());
    let [by_id, whole] = [&referring, &next(items)].map(|body| shared().post("/v1/responses", body).json());
    assert_eq!(by_id["usage"]["input_tokens"], whole["usage"]["input_tokens"], "{by_id}");
    assert!(by_id["usage"]["input_tokens"].is_u64() && by_id["warnings"].is_null(), "{by_id}");
    let counted = shared().post("/v1/responses/input_tokens", &referring).json();
    assert_eq!(counted["input_tokens"], whole["usage"]["input_tokens"]);

    let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
    assert_eq!(ask(&shared().address, "DELETE", &path, &[], b"").status, 200);
    let gone = shared().post("/v1/responses", &referring);
    let error = &gone.json()["error"];
    assert_eq!((gone.status, &error["param"]), (400, &json!("input[1].id")));
    assert!(error["message"].as_str().unwrap().contains("--keep-responses"), "{error}");
}

#[test]
fn extended_input_tokens_are_counted_without_a_reply() {
    let mut body = body(false);
    body["max_output_tokens"] = 1.into();
    let counted = shared().post("/v1/responses/input_tokens", &body).json();
    assert_eq!(counted["object"], "response.input_tokens");
    let usage = shared().post("/v1/responses", &body).json()["usage"].clone();
    assert!(counted["input_tokens"].is_u64() && counted["input_tokens"] == usage["input_tokens"], "{counted} {usage}");
    body["tools"][0]["strict"] = true.into();
    let strict = shared().post("/responses/input_tokens", &body).json();
    assert_eq!(strict["input_tokens"], counted["input_tokens"], "strict is not in the prompt");
    body["input"].take();
    assert_eq!(shared().post("/responses/input_tokens", &body).status, 400);
}

/// Functions in a namespace, as Codex sends them.
fn in_namespace() -> Value {
    let legs = json!({"enum": [2, 4]});
    let parameters = json!({"type": "object", "properties": {"legs": legs}, "required": ["legs"]});
    let [count, walk] = ["count", "walk"].map(|name| {
        let mut function = json!({"type": "function", "name": name, "description": "Counts", "strict": true});
        function["parameters"] = parameters.clone();
        function
    });
    json!({"type": "namespace", "name": "mcp__animals__", "description": "Animals.", "tools": [count, walk]})
}

/// The model gets the functions of a namespace, and clients get their names back, also after they have sent a call.
#[test]
fn extended_functions_in_a_namespace_are_called() {
    let shell = json!({"type": "function", "name": "shell"});
    let one = json!({"type": "function", "namespace": "mcp__animals__", "name": "walk"});
    let whole = json!({"type": "namespace", "name": "mcp__animals__"});
    let mut body = json!({
        "input": QUESTION, "tools": [shell, in_namespace()], "temperature": 0, "reasoning": {"effort": "none"},
        "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [whole]},
    });
    let any = shared().post("/v1/responses", &body).json();
    let called = any["output"][0].clone();
    assert_eq!((&called["type"], &called["namespace"]), (&"function_call".into(), &"mcp__animals__".into()), "{any}");
    assert!(called["name"] == "count" || called["name"] == "walk", "{any}");
    assert_eq!(any["tool_choice"]["tools"][1], one, "{any}");

    (body["tool_choice"], body["stream"]) = (one.clone(), true.into());
    let events = shared().post("/v1/responses", &body).events();
    let named = |kind: &str, field: &str| {
        let event = events.iter().find(|event| event["type"] == kind).unwrap_or_else(|| panic!("{kind}: {events:?}"));
        let item = if field.is_empty() { event } else { &event[field] };
        [item["namespace"].clone(), item["name"].clone()]
    };
    for kind in ["response.output_item.added", "response.output_item.done"] {
        assert_eq!(named(kind, "item"), [json!("mcp__animals__"), json!("walk")]);
    }
    assert_eq!(named("response.function_call_arguments.done", "")[1], "walk");
    let response = &events.last().unwrap()["response"];
    assert_eq!(response["tool_choice"], one, "{response}");
    let repeated = &response["tools"][1];
    let names: Vec<&Value> = repeated["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!((&repeated["name"], names), (&json!("mcp__animals__"), vec![&json!("count"), &json!("walk")]));

    // The call comes back, and the model sees it under the name that it has written.
    let output = json!({"type": "function_call_output", "call_id": called["call_id"], "output": "4"});
    let mut next = json!({"input": [{"role": "user", "content": QUESTION}, called, output], "tools": [in_namespace()]});
    let tokens = |next: &Value| shared().post("/v1/responses/input_tokens", next).json()["input_tokens"].clone();
    let with_namespace = tokens(&next);
    let name = format!("mcp__animals__{}", called["name"].as_str().unwrap());
    let item = next["input"][1].as_object_mut().unwrap();
    (item["namespace"], item["name"]) = (Value::Null, name.into());
    assert_eq!(tokens(&next), with_namespace);
}

/// Names and choices are repeated for each function of a namespace, so both are bounded.
#[test]
fn extended_namespaces_are_bounded_and_other_tools_in_them_are_named() {
    let mut body = json!({"input": QUESTION, "tools": [in_namespace()], "max_output_tokens": 1});
    let chosen = vec![json!({"type": "namespace", "name": "mcp__animals__"}); 1025];
    body["tool_choice"] = json!({"type": "allowed_tools", "mode": "auto", "tools": chosen});
    for path in ["/v1/responses", "/v1/responses/input_tokens"] {
        let answer = shared().post(path, &body);
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &"tool_choice".into()), "{path}");
    }
    body["tool_choice"].take();
    body["tools"][0]["tools"].as_array_mut().unwrap().push(json!({"type": "custom", "name": "patch"}));
    let warnings = shared().post("/v1/responses", &body).json()["warnings"].clone();
    let why = "ignored; only function tools with a name are supported";
    assert_eq!(warnings, json!([format!("tool of type custom in namespace mcp__animals__: {why}")]));
    body["tools"][0]["name"] = "n".repeat(257).into();
    let answer = shared().post("/v1/responses", &body);
    assert!(answer.status == 400 && answer.text().contains("257 bytes; at most 256"), "{}", answer.text());
}
