//! Tests `/v1/chat/completions`, `/v1/completions` and `/v1/models`.

use super::{ANSWER, QUESTION, Serving, THOUGHT, question, shared};
use serde_json::{Value, json};

/// The sum of a stream's deltas: thinking, text, the reason of the end.
fn joined(events: &[Value], choice: u64) -> (String, String, Vec<String>) {
    let (mut thinking, mut text, mut reasons) = (String::new(), String::new(), Vec::new());
    for event in events.iter().filter_map(|event| event["choices"].as_array()).flatten() {
        if event["index"] == choice {
            thinking += event["delta"]["reasoning_content"].as_str().unwrap_or_default();
            text += event["delta"]["content"].as_str().unwrap_or_default();
            reasons.extend(event["finish_reason"].as_str().map(str::to_owned));
        }
    }
    (thinking, text, reasons)
}

#[test]
fn a_chat_is_answered_with_its_figures() {
    let serving = shared();
    let answer = serving.post("/v1/chat/completions", &question());
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    let json = answer.json();
    let choice = &json["choices"][0];
    assert_eq!(choice["message"]["content"].as_str().unwrap().trim(), ANSWER);
    assert_eq!(choice["message"]["reasoning_content"].as_str().unwrap().trim(), THOUGHT);
    assert_eq!((&choice["finish_reason"], &json["object"]), (&"stop".into(), &"chat.completion".into()));
    let (usage, timings) = (&json["usage"], &json["timings"]);
    let number = |value: &Value| value.as_u64().unwrap();
    let sum = number(&usage["prompt_tokens"]) + number(&usage["completion_tokens"]);
    assert_eq!(number(&usage["total_tokens"]), sum);
    let prompt = number(&timings["cache_n"]) + number(&timings["prompt_n"]);
    assert_eq!(
        (prompt, number(&timings["predicted_n"])),
        (number(&usage["prompt_tokens"]), number(&usage["completion_tokens"]))
    );
    assert!(number(&usage["completion_tokens_details"]["reasoning_tokens"]) > 3, "{usage}");
}

#[test]
fn a_stream_has_the_same_content() {
    let mut body = question();
    body["stream"] = true.into();
    body["stream_options"] = json!({"include_usage": true});
    let answer = shared().post("/v1/chat/completions", &body);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let events = answer.events();
    let (thinking, text, reasons) = joined(&events, 0);
    assert_eq!((thinking.trim(), text.trim(), reasons), (THOUGHT, ANSWER, vec!["stop".to_owned()]));
    let [.., figures, end] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((end, &figures["choices"]), (&"[DONE]".into(), &json!([])));
    assert!(figures["usage"]["completion_tokens"].as_u64().unwrap() > 5, "{figures}");
    assert!(events[..events.len() - 2].iter().all(|event| event.get("usage") == Some(&Value::Null)), "{events:?}");
    for at in [3, 2] {
        assert!(events[events.len() - at]["timings"]["predicted_per_second"].is_number(), "{events:?}");
    }
}

#[test]
fn extended_the_next_turn_finds_the_last_one_in_the_cache() {
    let serving = Serving::start(&[]); // a server of its own, whose slots no other test needs
    let mut body = question();
    body["messages"][0]["content"] = "Tell me a story about a fox and a hen, who meet at a well.".into();
    body["max_tokens"] = 8.into();
    let first = serving.post("/v1/chat/completions", &body).json();
    let again = serving.post("/v1/chat/completions", &body).json();
    let cached = |json: &Value| json["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    let prompt = first["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(cached(&again) + 2 >= prompt && cached(&again) < prompt, "{again}");
    assert_eq!(first["choices"][0]["finish_reason"], "length");
}

#[test]
fn extended_several_replies_differ() {
    let serving = shared();
    let mut body =
        json!({"messages": [{"role": "user", "content": "Tell me a story about an owl."}], "temperature": 1.5});
    (body["seed"], body["max_tokens"]) = (7.into(), 20.into());
    let text =
        |choice: &Value| choice["message"]["reasoning_content"].to_string() + &choice["message"]["content"].to_string();
    let alone = |_| text(&serving.post("/v1/chat/completions", &body).json()["choices"][0]);
    let [first, again] = [0, 1].map(alone);
    assert_eq!(first, again, "by the seed");
    body["n"] = 3.into();
    let json = serving.post("/v1/chat/completions", &body).json();
    let texts: std::collections::BTreeSet<String> = json["choices"].as_array().unwrap().iter().map(text).collect();
    assert_eq!(texts.len(), 3, "{texts:?}");
    let prompt = json["timings"]["cache_n"].as_u64().unwrap() + json["timings"]["prompt_n"].as_u64().unwrap();
    assert_eq!((&json["usage"]["prompt_tokens"], &json["usage"]["completion_tokens"]), (&prompt.into(), &60.into()));
    body["stream"] = true.into();
    let events = serving.post("/v1/chat/completions", &body).events();
    for index in 0..3 {
        let (thinking, text, reasons) = joined(&events, index);
        assert!(!(thinking + &text).is_empty() && reasons == ["length"], "{index}: {reasons:?}");
    }
}

#[test]
fn extended_thinking_can_be_left_out() {
    for (field, value) in
        [("chat_template_kwargs", json!({"enable_thinking": false})), ("reasoning_effort", json!("none"))]
    {
        let mut body = question();
        body[field] = value;
        let json = shared().post("/v1/chat/completions", &body).json();
        let message = &json["choices"][0]["message"];
        assert!(message["reasoning_content"].is_null() && !message["content"].as_str().unwrap().is_empty(), "{json}");
    }
}

#[test]
fn a_stop_string_ends_the_answer_before_it() {
    for (stop, sequences) in [
        (json!("five"), json!(null)),
        (json!(["five", "never said"]), json!(null)),
        (json!("never said"), json!(["five"])),
    ] {
        let mut body = question();
        (body["stop"], body["stop_sequences"]) = (stop, sequences);
        (body["repeat_penalty"], body["repetition_penalty"]) = (json!(1.0), json!(null));
        let json = shared().post("/v1/chat/completions", &body).json();
        assert_eq!(json["choices"][0]["message"]["content"].as_str().unwrap().trim(), "Seven plus");
        assert_eq!(json["choices"][0]["finish_reason"], "stop");
    }
}

#[test]
fn extended_a_bias_bans_a_token() {
    let serving = shared();
    let tokens = serving.post("/tokenize", &json!({"content": "Seven"})).json()["tokens"].clone();
    let mut body = question();
    body["logit_bias"] = json!({tokens[0].to_string(): -100});
    let json = serving.post("/v1/chat/completions", &body).json();
    let text = json["choices"][0]["message"]["content"].as_str().unwrap().trim().to_owned();
    assert!(!text.is_empty() && !text.starts_with("Seven"), "{text}");
}

#[test]
fn extended_log_probabilities_are_those_of_the_answer() {
    let mut body = question();
    (body["logprobs"], body["top_logprobs"]) = (true.into(), 2.into());
    let json = shared().post("/v1/chat/completions", &body).json();
    let content = json["choices"][0]["logprobs"]["content"].as_array().unwrap();
    let text: String = content.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!(text.trim(), ANSWER);
    for token in content {
        let (top, own) = (token["top_logprobs"].as_array().unwrap(), token["logprob"].as_f64().unwrap());
        assert!(top.len() == 2 && own <= 0.0 && top[0]["logprob"].as_f64().unwrap() >= own, "{token}");
        let bytes: Vec<u8> = serde_json::from_value(token["bytes"].clone()).unwrap();
        assert_eq!(String::from_utf8_lossy(&bytes), token["token"].as_str().unwrap());
    }
    body["stream"] = true.into();
    let events = shared().post("/v1/chat/completions", &body).events();
    let tokens = events.iter().filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array()).flatten();
    let streamed: Vec<f64> = tokens.filter_map(|token| token["logprob"].as_f64()).collect();
    let whole: Vec<f64> = content.iter().filter_map(|token| token["logprob"].as_f64()).collect();
    assert_eq!(streamed.len(), whole.len());
    assert!(streamed.iter().zip(&whole).all(|(a, b)| (a - b).abs() < 1e-3), "{streamed:?} {whole:?}");
}

#[test]
fn a_completion_continues_the_text() {
    let serving = shared();
    let body = json!({"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, "echo": true});
    let json = serving.post("/v1/completions", &body).json();
    let text = json["choices"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("Once upon a time") && text.len() > 20, "{text}");
    assert_eq!(
        (&json["choices"][0]["finish_reason"], &json["usage"]["completion_tokens"]),
        (&"length".into(), &12.into())
    );
    let tokens = serving.post("/tokenize", &json!({"content": "Once upon a time"})).json()["tokens"].clone();
    let streamed = json!({"prompt": tokens, "max_tokens": 12, "temperature": 0, "stream": true, "echo": true});
    let events = serving.post("/v1/completions", &streamed).events();
    let joined: String = events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
    assert_eq!((joined.as_str(), events.last()), (text, Some(&"[DONE]".into())));
}

#[test]
fn extended_several_prompts_get_their_completions() {
    let body = json!({"prompt": ["One", "Two"], "n": 2, "max_tokens": 4, "temperature": 0, "logprobs": 1});
    let json = shared().post("/v1/completions", &body).json();
    let choices = json["choices"].as_array().unwrap();
    assert_eq!((choices.len(), &choices[0]["text"]), (4, &choices[1]["text"]));
    let logprobs = &choices[2]["logprobs"];
    let names: Vec<&str> = logprobs["tokens"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!((names.len(), names.concat()), (4, choices[2]["text"].as_str().unwrap().to_owned()));
    assert!(logprobs["top_logprobs"][0].as_object().unwrap().len() == 1, "{logprobs}");
}

#[test]
fn the_model_is_listed() {
    let serving = shared();
    let list = serving.get("/v1/models").json();
    let model = &list["data"][0];
    assert_eq!((&model["object"], &model["meta"]["n_ctx"]), (&"model".into(), &1024.into()));
    let id = model["id"].as_str().unwrap();
    assert_eq!(serving.get(&format!("/v1/models/{id}")).json()["id"], id);
    assert_eq!(serving.get("/v1/models/another/model").status, 404);
}

#[test]
fn a_tool_result_can_be_answered() {
    let body = json!({"temperature": 0, "max_tokens": 8, "tools": [
        {"type": "function", "function": {"name": "add", "description": "Adds", "parameters": {"type": "object"}}},
        {"type": "web_search"}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 7, \"b\": 5}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "12"}]});
    let answer = shared().post("/v1/chat/completions", &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["usage"]["completion_tokens"], 8);
}

/// Like OpenAI's server, it refuses a result whose call is not in the conversation, and names the id.
#[test]
fn a_result_without_its_call_is_refused() {
    let body = json!({"max_tokens": 1, "messages": [
        {"role": "user", "content": QUESTION}, {"role": "tool", "tool_call_id": "gone", "content": "12"}]});
    let answer = shared().post("/v1/chat/completions", &body);
    assert!(answer.status == 400 && answer.text().contains("gone"), "{}", answer.text());
}
