//! Tests `/v1/messages` and `/v1/messages/count_tokens`.

use super::{ANSWER, QUESTION, Serving, THOUGHT, shared};
use serde_json::{Value, json};

fn body() -> Value {
    json!({"model": "claude", "max_tokens": 100, "temperature": 0, "messages": [{"role": "user", "content": QUESTION}]})
}

#[test]
fn a_message_is_answered() {
    let mut body = body();
    body["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
    let json = shared().post("/v1/messages", &body).json();
    let text = |index: usize, name: &str| json["content"][index][name].as_str().unwrap().trim().to_owned();
    assert_eq!((text(0, "thinking"), text(1, "text")), (THOUGHT.to_owned(), ANSWER.to_owned()));
    assert_eq!(
        (&json["stop_reason"], &json["role"], &json["type"]),
        (&"end_turn".into(), &"assistant".into(), &"message".into())
    );
    let usage = &json["usage"];
    assert!(
        usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap() > 5,
        "{usage}"
    );
}

#[test]
fn a_stream_has_the_same_content() {
    let mut body = body();
    (body["thinking"], body["stream"]) = (json!({"type": "enabled"}), true.into());
    let answer = shared().post("/v1/messages", &body);
    let events = answer.events();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        (kinds[0], kinds[kinds.len() - 2], kinds[kinds.len() - 1]),
        ("message_start", "message_delta", "message_stop")
    );
    let named = answer.text().lines().filter(|line| line.starts_with("event: ")).count();
    assert_eq!(named, events.len(), "each event has a name");
    let joined = |name: &str| -> String {
        events.iter().filter_map(|event| event["delta"][name].as_str()).collect::<String>().trim().to_owned()
    };
    assert_eq!((joined("thinking"), joined("text")), (THOUGHT.to_owned(), ANSWER.to_owned()));
    let starts = kinds.iter().filter(|kind| **kind == "content_block_start").count();
    assert_eq!((starts, kinds.iter().filter(|kind| **kind == "content_block_stop").count()), (2, 2));
    let end = &events[events.len() - 2];
    assert_eq!(end["delta"]["stop_reason"], "end_turn");
    assert!(end["usage"]["output_tokens"].as_u64().unwrap() > 5, "{end}");
}

#[test]
fn extended_without_thinking_there_is_only_text() {
    let mut without = body();
    without["thinking"] = json!({"type": "enabled"});
    without["chat_template_kwargs"] = json!({"enable_thinking": false});
    for body in [body(), without] {
        let json = shared().post("/v1/messages", &body).json();
        let blocks = json["content"].as_array().unwrap().iter();
        assert_eq!(blocks.filter_map(|block| block["type"].as_str()).collect::<Vec<_>>(), ["text"], "{json}");
    }
}

#[test]
fn extended_tokens_are_counted_without_a_reply() {
    let serving = shared();
    let mut body = body();
    body["thinking"] = json!({"type": "enabled"});
    let asked = body["messages"][0].clone();
    for begun in [None, Some(""), Some("Seven plus five is")] {
        let begun = begun.map(|text| json!({"role": "assistant", "content": text}));
        body["messages"] = [asked.clone()].into_iter().chain(begun).collect();
        let counted = serving.post("/v1/messages/count_tokens", &body).json()["input_tokens"].as_u64().unwrap();
        let usage = serving.post("/v1/messages", &body).json()["usage"].clone();
        let told = usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap();
        assert_eq!(counted, told, "{body}");
    }
    body["max_tokens"].take();
    assert_eq!(serving.post("/v1/messages/count_tokens", &body).status, 200, "which needs no limit");
}

#[test]
fn extended_varying_lines_of_a_client_do_not_end_the_prefix() {
    let serving = Serving::start(&[]); // a server of its own, whose slots no other test needs
    let count = |billed: &str| {
        let mut body = body();
        let header = format!("x-anthropic-billing-header: cc_version=2; cch={billed};");
        body["system"] = json!([{"type": "text", "text": header}, {"type": "text", "text": "You count."}]);
        body["max_tokens"] = 2.into();
        serving.post("/v1/messages", &body).json()["usage"].clone()
    };
    count("aaaaa");
    let again = count("bbbbb");
    assert!(again["input_tokens"].as_u64().unwrap() <= 2, "{again}");
}

#[test]
fn a_stop_sequence_is_reported() {
    let mut body = body();
    body["stop_sequences"] = json!(["never said", "five", "twelve"]);
    let json = shared().post("/v1/messages", &body).json();
    assert_eq!((&json["stop_reason"], &json["stop_sequence"]), (&"stop_sequence".into(), &"five".into()));
}

#[test]
fn errors_have_its_form() {
    let serving = shared();
    let mut without = body();
    without["max_tokens"].take();
    for (answer, status, kind) in [
        (serving.post("/v1/messages", &without), 400, "invalid_request_error"),
        (serving.post("/v1/messages", &json!({"messages": 3})), 400, "invalid_request_error"),
        (serving.get("/v1/messages"), 405, "invalid_request_error"),
        (serving.post("/v1/messages/batches", &json!({})), 404, "not_found_error"),
    ] {
        let json = answer.json();
        let told = (answer.status, json["type"].as_str(), json["error"]["type"].as_str());
        assert_eq!(told, (status, Some("error"), Some(kind)), "{json}");
    }
}

#[test]
fn errors_name_the_messages_of_the_request() {
    let mut wrong = body();
    wrong["system"] = "Be brief.".into();
    let result = json!({"type": "tool_result", "tool_use_id": "none", "content": "2"});
    for (content, place) in [
        (json!([{"type": "text", "text": "?"}, {"type": "audio"}]), "messages[1].content[1]: a part of type audio"),
        (json!([{"type": "text", "text": "?"}, result]), "messages[1].content[1].tool_use_id: expected"),
        (json!(3), "messages[1].content: expected a string or a list of blocks"),
    ] {
        wrong["messages"] = json!([{"role": "user", "content": QUESTION}, {"role": "user", "content": content}]);
        let answer = shared().post("/v1/messages", &wrong);
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(answer.status == 400 && message.starts_with(place), "{message}");
    }
}

#[test]
fn errors_name_the_fields_of_the_request() {
    let search = json!({"type": "web_search_20250305", "name": "web_search"});
    for (field, value, wrong) in [
        ("stop_sequences", json!([""]), "stop_sequences: expected"),
        ("stop_sequences", json!(vec!["x"; 65]), "stop_sequences: 65 strings"),
        ("tools", json!([search, {"name": "f", "input_schema": "x"}]), "tools[1].input_schema: expected an object"),
    ] {
        let mut body = body();
        body[field] = value;
        let answer = shared().post("/v1/messages", &body);
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(answer.status == 400 && message.starts_with(wrong), "{message}");
    }
}

#[test]
fn extended_results_and_earlier_thinking_are_accepted() {
    let mut body = body();
    body["tools"] =
        json!([{"name": "add", "input_schema": {"type": "object"}}, {"type": "bash_20250124", "name": "bash"}]);
    body["messages"] = json!([
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "add", "signature": "unsigned"},
            {"type": "tool_use", "id": "t", "name": "add", "input": {"a": 7}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "12"}]}]);
    body["max_tokens"] = 4.into();
    let answer = shared().post("/v1/messages", &body);
    assert_eq!((answer.status, &answer.json()["stop_reason"]), (200, &"max_tokens".into()), "{}", answer.text());
}
