//! Tests replies that continue the last message of a request.

use super::{ANSWER, QUESTION, THOUGHT, shared};
use serde_json::{Value, json};

const BEGUN: &str = "Seven plus";

/// The text of a whole answer of either interface.
fn text(answer: &Value) -> &str {
    let found = answer["choices"][0]["message"]["content"].as_str().or_else(|| answer["content"][0]["text"].as_str());
    found.unwrap_or_else(|| panic!("{answer}"))
}

fn asked(begun: Value) -> Value {
    json!({"messages": [{"role": "user", "content": QUESTION}, begun], "temperature": 0, "max_tokens": 60})
}

/// A chat whose last message is continued, with that message's thinking.
fn chat() -> Value {
    let mut body = asked(json!({"role": "assistant", "content": BEGUN, "reasoning_content": THOUGHT}));
    body["continue_final_message"] = true.into();
    body
}

#[test]
fn extended_a_chat_continues_its_last_message() {
    let serving = shared();
    for generation_prompt in [Value::Null, false.into()] {
        let mut body = chat();
        body["add_generation_prompt"] = generation_prompt;
        let answer = serving.post("/v1/chat/completions", &body).json();
        assert_eq!(format!("{BEGUN}{}", text(&answer)), ANSWER);
        assert!(answer["choices"][0]["message"]["reasoning_content"].is_null(), "{answer}");
    }
    let mut body = chat();
    body["stream"] = true.into();
    let events = serving.post("/v1/chat/completions", &body).events();
    let pieces = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
    assert_eq!(format!("{BEGUN}{}", pieces.collect::<String>()), ANSWER);
}

/// A chat whose messages have a `prefix`.
fn prefixed(question: Value, begun: Value) -> Value {
    let mut body = chat();
    body.as_object_mut().unwrap().remove("continue_final_message");
    (body["messages"][0]["prefix"], body["messages"][1]["prefix"]) = (question, begun);
    body
}

#[test]
fn extended_a_message_with_a_prefix_is_continued() {
    let serving = shared();
    let post = |body: &Value| serving.post("/v1/chat/completions", body).json();
    let (on, off) = (Value::from(true), Value::from(false));
    let mut body = prefixed(off.clone(), on);
    for generation_prompt in [Value::Null, off.clone()] {
        body["add_generation_prompt"] = generation_prompt;
        let answer = post(&body);
        assert_eq!(format!("{BEGUN}{}", text(&answer)), ANSWER);
        assert!(answer["warnings"].is_null(), "{answer}");
    }
    // Without it the last message is one like the others.
    let mut said = asked(json!({"role": "assistant", "content": BEGUN, "reasoning_content": THOUGHT}));
    let mut unprefixed = prefixed(Value::Null, off);
    (said["max_tokens"], unprefixed["max_tokens"]) = (1.into(), 1.into());
    let (said, answer) = (post(&said), post(&unprefixed));
    assert_eq!(answer["usage"]["prompt_tokens"], said["usage"]["prompt_tokens"], "{answer}");
    assert!(answer["usage"].is_object() && answer["warnings"].is_null(), "{answer}");
}

#[test]
fn extended_a_message_of_the_assistant_at_the_end_is_continued() {
    let serving = shared();
    let post = |body: &Value| serving.post("/v1/messages", body).json();
    let mut whole = asked(json!({"role": "assistant", "content": ""}));
    let said = post(&whole);
    let (begun, rest) = text(&said).split_at(text(&said).rfind(' ').unwrap());
    whole["messages"][1]["content"] = json!([{"type": "text", "text": begun}]);
    let continued = post(&whole);
    assert_eq!((text(&continued), &continued["stop_reason"]), (rest, &"end_turn".into()), "{continued}");
    let thought = json!([{"type": "thinking", "thinking": THOUGHT}, {"type": "text", "text": BEGUN}]);
    whole["messages"][1]["content"] = thought;
    assert_eq!(format!("{BEGUN}{}", text(&post(&whole))), ANSWER);
}

#[test]
fn what_cannot_be_continued_is_refused() {
    let serving = shared();
    let refused = |path: &str, body: &Value, part: &str| {
        let answer = serving.post(path, body);
        assert!(answer.status == 400 && answer.text().contains(part), "{part}: {}", answer.text());
    };
    let with = |field: &str, value: Value| {
        let mut body = chat();
        body[field] = value;
        body
    };
    let path = "/v1/chat/completions";
    refused(path, &with("add_generation_prompt", true.into()), "add_generation_prompt");
    refused(path, &with("response_format", json!({"type": "json_object"})), "response_format: expected none");
    let mut closed = with("add_generation_prompt", false.into());
    closed["continue_final_message"] = false.into();
    refused(path, &closed, "continue_final_message");
    let mut called = with("tool_choice", "required".into());
    called["tools"] = json!([{"type": "function", "function": {"name": "dice", "parameters": {"type": "object"}}}]);
    refused(path, &called, "tool_choice: expected no required call");
    let mut unsaid = chat();
    unsaid["messages"].as_array_mut().unwrap().pop();
    refused(path, &unsaid, "last message by the assistant");
    let (on, last) = (Value::from(true), "messages[0].prefix: true is allowed only in the last message");
    refused(path, &prefixed(on.clone(), Value::Null), last);
    let mut asks = prefixed(Value::Null, on.clone());
    asks["add_generation_prompt"] = on.clone();
    refused(path, &asks, "expected false with prefix: true");
    let mut contradicts = prefixed(Value::Null, on.clone());
    contradicts["continue_final_message"] = false.into();
    refused(path, &contradicts, "continue_final_message: expected true or nothing with prefix: true");
    asks["messages"][1] = json!({"role": "user", "content": "And?", "prefix": true});
    refused(path, &asks, "messages[1].prefix: true is allowed only in a message by the assistant");
    refused(path, &prefixed(Value::Null, "yes".into()), "expected true or false");
    let path = "/v1/messages";
    refused(path, &asked(json!({"role": "assistant", "content": "Seven "})), "cannot end with trailing whitespace");
    let call = json!([{"type": "tool_use", "id": "a", "name": "dice", "input": {}}]);
    refused(path, &asked(json!({"role": "assistant", "content": call})), "tool calls");
}
