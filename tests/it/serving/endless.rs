//! Tests `ignore_eos`: replies that only a limit or a stop string ends.

use super::{QUESTION, shared};
use serde_json::{Value, json};

/// More tokens than the whole reply to the question has.
const MOST: u64 = 16;

/// Bodies of all interfaces with a reply of at most `MOST` tokens, and where their answers have the number of tokens.
fn bodies() -> [(&'static str, Value, &'static str); 4] {
    let messages = json!([{"role": "user", "content": QUESTION}]);
    let without = json!({"enable_thinking": false});
    [
        (
            "/v1/chat/completions",
            json!({"messages": messages, "max_tokens": MOST, "chat_template_kwargs": without}),
            "completion_tokens",
        ),
        ("/v1/messages", json!({"messages": messages, "max_tokens": MOST}), "output_tokens"),
        (
            "/v1/responses",
            json!({"input": QUESTION, "max_output_tokens": MOST, "chat_template_kwargs": without}),
            "output_tokens",
        ),
        (
            "/v1/completions",
            json!({"prompt": "<|user|>What is two plus two?<|assistant|></think>", "max_tokens": MOST}),
            "completion_tokens",
        ),
    ]
}

#[test]
fn extended_a_reply_goes_on_until_its_limit() {
    let serving = shared();
    for (path, mut body, name) in bodies() {
        body["temperature"] = 0.into();
        let tokens = |body: &Value| {
            let answer = serving.post(path, body).json();
            answer["usage"][name].as_u64().unwrap_or_else(|| panic!("{path}: {answer}"))
        };
        assert!(tokens(&body) < MOST, "{path}: the reply ends by itself");
        body["ignore_eos"] = true.into();
        assert_eq!(tokens(&body), MOST, "{path}");
    }
}

#[test]
fn a_stop_string_ends_such_a_reply() {
    let (path, mut body, _) = bodies()[0].clone();
    (body["temperature"], body["ignore_eos"], body["stop"]) = (0.into(), true.into(), "plus".into());
    let choice = shared().post(path, &body).json()["choices"][0].take();
    assert_eq!(choice["finish_reason"], "stop");
    assert!(!choice["message"]["content"].as_str().unwrap().contains("plus"), "{choice}");
}

#[test]
fn extended_a_reply_that_has_to_end_is_refused() {
    let (path, mut body, _) = bodies()[0].clone();
    (body["ignore_eos"], body["max_tokens"]) = (true.into(), 4.into());
    let mut formatted = body.clone();
    formatted["response_format"] = json!({"type": "json_object"});
    body["tools"] = json!([{"type": "function", "function": {"name": "dice", "parameters": {"type": "object"}}}]);
    for body in [&formatted, &body] {
        let answer = shared().post(path, body);
        assert!(answer.status == 400 && answer.text().contains("ignore_eos"), "{}", answer.text());
    }
    body["tool_choice"] = "none".into();
    assert_eq!(shared().post(path, &body).json()["usage"]["completion_tokens"], 4);
}
