//! Tests what becomes of fields, tools and parts that the server does not have: they are refused, or named in the
//! answer.

use super::{QUESTION, shared};
use serde_json::{Value, json};

/// A short request to each interface, those for conversations first.
fn requests() -> [(&'static str, Value); 4] {
    let messages = json!([{"role": "user", "content": QUESTION}]);
    [
        ("/v1/chat/completions", json!({"messages": messages, "max_tokens": 4, "temperature": 0})),
        ("/v1/responses", json!({"input": messages, "max_output_tokens": 4, "temperature": 0})),
        ("/v1/messages", json!({"messages": messages, "max_tokens": 4, "temperature": 0})),
        ("/v1/completions", json!({"prompt": "x", "max_tokens": 4, "temperature": 0})),
    ]
}

fn with(body: &Value, fields: &Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

#[test]
fn extended_ignored_fields_are_named_in_answers_and_at_the_end_of_streams() {
    let fields = json!({"verbosity": {"of": ["low"]}, "user": "me", "store": false, "logit_bias": null, "top_a": null});
    let named = json!(["verbosity: not supported; ignored"]);
    for (path, body) in requests() {
        let json = shared().post(path, &with(&body, &fields)).json();
        assert_eq!(json["warnings"], named, "{path}: {json}");
        let events = shared().post(path, &with(&with(&body, &fields), &json!({"stream": true}))).events();
        let warnings = events.iter().flat_map(|event| [&event["warnings"], &event["response"]["warnings"]]);
        assert_eq!(warnings.filter(|warnings| !warnings.is_null()).collect::<Vec<_>>(), [&named], "{path}");
        let json = shared().post(path, &body).json();
        assert!(json["warnings"].is_null(), "{path}: {json}");
    }
    let [(path, chat), .., (completions, prompt)] = requests();
    let two = shared().post(path, &with(&with(&chat, &fields), &json!({"n": 2}))).json();
    assert_eq!(two["warnings"], named, "once for all replies");
    for path in [completions, "/completion"] {
        let json = shared().post(path, &with(&prompt, &json!({"enable_thinking": "no"}))).json();
        let warning = "enable_thinking: not supported; ignored";
        assert_eq!(json["warnings"], json!([warning]), "{path}: which is for conversations");
    }
}

#[test]
fn unknown_fields_of_messages_are_named_once() {
    let warned = |path: &str, messages: Value| {
        let mut body = json!({"messages": messages, "max_tokens": 1, "stream": false});
        if path == "/api/chat" {
            body["options"] = json!({"num_predict": body.as_object_mut().unwrap().remove("max_tokens")});
        }
        let answer = shared().post(path, &body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()["warnings"].clone()
    };
    let said = json!({"role": "assistant", "content": "Ask me.", "refusal": null, "annotations": [], "audio": null,
        "function_call": null, "tool_calls": null, "reasoning": "Hm."});
    let asked = json!({"role": "user", "name": "ann", "content": [
        {"type": "text", "text": QUESTION, "cache_control": {"type": "ephemeral"}}]});
    let odd = |message: &Value| with(message, &json!({"mood": "glad", "audio": {"id": "a"}}));
    let weighed = json!({"role": "user", "content": [{"type": "text", "text": QUESTION, "weight": 2}]});
    for path in ["/v1/chat/completions", "/api/chat"] {
        assert_eq!(warned(path, json!([asked, said, asked])), Value::Null, "{path}");
        let names = ["mood", "audio", "content.weight"].map(|name| format!("messages.{name}: not supported; ignored"));
        assert_eq!(warned(path, json!([odd(&asked), odd(&said), weighed])), json!(names), "{path}");
        let many: Value = (0..2000).map(|index| (format!("f{index}"), json!(1))).collect();
        let warnings = warned(path, json!([with(&asked, &many)]));
        assert_eq!((warnings.as_array().unwrap().len(), &warnings[16]), (17, &"1984 more warnings not listed".into()));
    }
}

#[test]
fn what_the_model_does_not_get_is_named() {
    let searches = |name: &str, kind: &str| {
        let tools = json!([{"type": kind, "name": "search"}, {"type": kind, "name": "search"}]);
        let (_, body) = requests().into_iter().find(|(path, _)| *path == name).unwrap();
        let json = shared().post(name, &with(&body, &json!({"tools": tools}))).json();
        let expected = format!("tool of type {kind}: ignored; only function tools with a name are supported");
        assert_eq!(json["warnings"], json!([expected]), "{json}");
    };
    searches("/v1/chat/completions", "web_search");
    searches("/v1/responses", "web_search");
    searches("/v1/messages", "web_search_20250305");
    let mut body = json!({"messages": [{"role": "user", "content": QUESTION}], "options": {"num_predict": 1}});
    (body["stream"], body["tools"]) = (false.into(), json!([{"type": "web_search"}]));
    let warned = &shared().post("/api/chat", &body).json()["warnings"];
    assert_eq!(warned, &json!(["tool of type web_search: ignored; only function tools with a name are supported"]));
    let why = "not supported; the thinking itself is the content of items of type reasoning";
    let body = json!({"input": QUESTION, "max_output_tokens": 1, "reasoning": {"summary": "auto"}});
    let json = shared().post("/v1/responses", &body).json();
    assert_eq!(json["warnings"], json!([format!("reasoning.summary: {why}")]));
    assert_eq!(json["reasoning"]["summary"], Value::Null);
}

#[test]
fn what_would_change_the_reply_is_refused() {
    for (path, body) in requests() {
        let answer = shared().post(path, &with(&body, &json!({"min_tokens": 5})));
        let error = &answer.json()["error"];
        let message = "min_tokens: not supported; leave it out, or set it to 0";
        assert_eq!((answer.status, &error["message"]), (400, &message.into()), "{path}");
        if path != "/v1/messages" {
            assert_eq!((&error["param"], &error["code"]), (&"min_tokens".into(), &"unsupported".into()), "{path}");
        }
        let neutral = json!({"min_tokens": 0, "typ_p": 1, "mirostat": 0, "mirostat_tau": 5, "xtc_probability": -1,
            "samplers": [], "image_data": [], "functions": [], "function_call": "auto", "format": ""});
        let answer = shared().post(path, &with(&body, &neutral));
        assert!(answer.status == 200 && answer.json()["warnings"].is_null(), "{path}: {}", answer.text());
    }
}

/// A program would take text that matches nothing for what it asked for.
#[test]
fn a_format_in_the_field_of_another_interface_is_refused() {
    let object = json!({"type": "json_object"});
    for (path, field, value) in [
        ("/v1/responses", "response_format", object.clone()),
        ("/v1/messages", "response_format", object.clone()),
        ("/v1/messages", "output_format", object.clone()),
        ("/v1/responses", "json_schema", json!({})),
        ("/v1/chat/completions", "format", json!("json")),
        ("/v1/chat/completions", "functions", json!([{"name": "f"}])),
        ("/v1/chat/completions", "function_call", json!({"name": "f"})),
    ] {
        let (_, body) = requests().into_iter().find(|(of, _)| *of == path).unwrap();
        let answer = shared().post(path, &with(&body, &json!({field: value})));
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(answer.status == 400 && message.starts_with(&format!("{field}: not supported; ")), "{path}: {message}");
    }
    let answer = shared().post("/completion", &json!({"prompt": "x", "response_format": object}));
    assert!(answer.status == 400 && answer.text().contains("response_format"), "{}", answer.text());
}

/// `param` is the field that the client sent.
#[test]
fn errors_name_the_field() {
    let [(chat, question), (responses, input), .., (completions, prompt)] = requests();
    for (path, body, field, value) in [
        (chat, &question, "n", json!(0)),
        (chat, &question, "max_completion_tokens", json!(-2)),
        (chat, &question, "max_tokens", json!(-2)),
        (chat, &question, "messages", json!([])),
        (chat, &question, "add_generation_prompt", json!(false)),
        (chat, &question, "response_format", json!({"type": "xml"})),
        (chat, &question, "enable_thinking", json!("no")),
        (chat, &question, "temperature", json!(-1)),
        (chat, &question, "temperature", json!("hot")),
        (chat, &question, "logit_bias", json!(3)),
        (responses, &input, "max_output_tokens", json!(-2)),
        (responses, &input, "input", json!([])),
        (responses, &input, "top_p", json!(2)),
        (completions, &prompt, "logprobs", json!(21)),
        (completions, &prompt, "suffix", json!("x")),
        (completions, &prompt, "json_schema", json!({})),
        (completions, &prompt, "prompt", json!(null)),
        ("/completion", &prompt, "prompt", json!(null)),
        (completions, &prompt, "stop_sequences", json!(vec!["x"; 65])),
    ] {
        let answer = shared().post(path, &with(body, &json!({field: value})));
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &field.into()), "{path} {}", answer.text());
    }
    let top = json!({"logprobs": true, "top_logprobs": 21});
    assert_eq!(shared().post(chat, &with(&question, &top)).json()["error"]["param"], "top_logprobs");
    let result = json!({"type": "function_call_output", "call_id": "none", "output": "2"});
    let results = json!({"input": [{"role": "user", "content": "?"}, result], "instructions": "Be brief."});
    assert_eq!(shared().post(responses, &with(&input, &results)).json()["error"]["param"], "input[1].call_id");
    let format = json!({"text": {"format": {"type": "json_schema"}}});
    assert_eq!(shared().post(responses, &with(&input, &format)).json()["error"]["param"], "text.format");
    for (missing, field) in [
        (json!({"documents": ["x"]}), "query"),
        (json!({"query": "?"}), "documents"),
        (json!({"query": "?", "texts": []}), "texts"),
    ] {
        assert_eq!(shared().post("/rerank", &missing).json()["error"]["param"], field);
    }
}

#[test]
fn extended_thinking_can_be_turned_off_in_the_words_of_every_interface() {
    let thinks = |json: &Value| {
        let blocks = [&json["content"], &json["output"]].into_iter().filter_map(Value::as_array).flatten();
        json["choices"][0]["message"]["reasoning_content"].is_string()
            || blocks.into_iter().any(|block| block["type"] == "thinking" || block["type"] == "reasoning")
    };
    for (path, mut body) in requests().into_iter().take(3) {
        let limit = if path == "/v1/responses" { "max_output_tokens" } else { "max_tokens" };
        body[limit] = 2.into();
        let on = json!({"thinking": {"type": "enabled"}});
        let body = if path == "/v1/messages" { with(&body, &on) } else { body };
        let json = shared().post(path, &body).json();
        assert!(thinks(&json), "{path}: {json}");
        for off in [
            json!({"thinking": {"type": "disabled"}}),
            json!({"enable_thinking": false}),
            json!({"reasoning": {"effort": "none"}}),
            json!({"reasoning": {"enabled": false}}),
            json!({"thinking": false, "reasoning": {}}),
            json!({"reasoning_effort": "none"}),
        ] {
            let json = shared().post(path, &with(&body, &off)).json();
            assert!(!thinks(&json) && json["error"].is_null() && json["warnings"].is_null(), "{path} {off}: {json}");
        }
    }
}

/// A document is the same prompt as its text between tags.
#[test]
fn extended_documents_and_files_of_text_are_read() {
    let text = "<document>\n<title>a.txt</title>\nAnts have six legs.\n</document>";
    let count = |part: Value| {
        let body = json!({"messages": [{"role": "user", "content": [part]}], "max_tokens": 1});
        shared().post("/v1/messages/count_tokens", &body).json()["input_tokens"].as_u64().unwrap()
    };
    let source = json!({"type": "text", "media_type": "text/plain", "data": "Ants have six legs."});
    let document = json!({"type": "document", "source": source, "title": "a.txt"});
    assert_eq!(count(document), count(json!({"type": "text", "text": text})));

    let data = "data:text/plain;base64,QW50cyBoYXZlIHNpeCBsZWdzLg==";
    let file = json!({"filename": "a.txt", "file_data": data});
    let messages = json!([{"role": "user", "content": [{"type": "file", "file": file}]}]);
    let prompt = shared().post("/apply-template", &json!({"messages": messages})).json();
    assert!(prompt["prompt"].as_str().unwrap().contains(text), "{prompt}");

    let input = json!([{"role": "user", "content": [with(&file, &json!({"type": "input_file"}))]}]);
    let answer = shared().post("/v1/responses", &json!({"input": input, "max_output_tokens": 1}));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let pdf = json!({"type": "input_file", "file_data": "data:application/pdf;base64,QQ=="});
    let input = json!([{"role": "user", "content": [pdf]}]);
    let answer = shared().post("/v1/responses", &json!({"input": input, "max_output_tokens": 1}));
    assert!(answer.status == 400 && answer.text().contains("application/pdf"), "{}", answer.text());
}

#[test]
fn only_pictures_of_the_last_question_are_refused() {
    let picture = json!([{"type": "image_url", "image_url": {"url": "data:,"}}]);
    let (seen, question) = (json!({"role": "user", "content": picture}), json!({"role": "user", "content": QUESTION}));
    let prompt = |messages: Value| shared().post("/apply-template", &json!({"messages": messages}));
    let answer = prompt(json!([seen, {"role": "assistant", "content": "Ants."}, question]));
    assert!(answer.text().contains("An image was here; this model cannot see it."), "{}", answer.text());
    let answer = prompt(json!([question, {"role": "assistant", "content": "Ants."}, seen]));
    assert!(answer.status == 400 && answer.text().contains("text only"), "{}", answer.text());

    // A picture that a function returned is in a message of the user, but is no question.
    let image = json!([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}]);
    let messages = |last: Value| {
        let call = json!([{"type": "tool_use", "id": "t", "name": "read", "input": {}}]);
        let called = json!({"role": "assistant", "content": call});
        let body = json!({"messages": [question, called, {"role": "user", "content": last}], "max_tokens": 1});
        shared().post("/v1/messages/count_tokens", &body).status
    };
    assert_eq!(messages(json!([{"type": "tool_result", "tool_use_id": "t", "content": image}])), 200);
    assert_eq!(messages(image), 400);
}
