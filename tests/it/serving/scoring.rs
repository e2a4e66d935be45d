//! Tests log-probabilities of prompts in `/v1/completions`, and the requests that lm-eval makes to measure a model.

use super::shared;
use crate::common::models::{fixture, read_f32, read_u32};
use serde_json::{Value, json};
use wglm::sample::logprobs;

/// A prompt whose logits llama.cpp has computed, and these.
fn known() -> (Vec<u32>, Vec<f32>) {
    let logits = read_f32(fixture("fable/dialog1.q4_0.logits.f32"));
    (read_u32(fixture("fable/dialog1.tokens.i32")), logits)
}

/// A request as lm-eval sends it: the continuation of each prompt is part of the prompt.
fn scored(prompt: impl Into<Value>) -> Value {
    json!({
        "prompt": prompt.into(), "model": "any", "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234,
        "echo": true,
    })
}

fn numbers(list: &Value) -> Vec<Option<f64>> {
    list.as_array().unwrap().iter().map(Value::as_f64).collect()
}

#[test]
fn extended_tokens_of_a_prompt_have_the_log_probabilities_of_other_programs() {
    let (tokens, logits) = known();
    let vocab = logits.len() / tokens.len();
    let mut body = scored(tokens.clone());
    (body["max_tokens"], body["logprobs"]) = (0.into(), 3.into());
    let serving = shared();
    for _ in 0..2 {
        let json = serving.post("/v1/completions", &body).json();
        let (choice, logprobs_of) = (&json["choices"][0], &json["choices"][0]["logprobs"]);
        let found = numbers(&logprobs_of["token_logprobs"]);
        assert_eq!((found.len(), found[0]), (tokens.len(), None), "{json}");
        for (place, found) in found.iter().enumerate().skip(1) {
            let row = &logits[(place - 1) * vocab..place * vocab];
            let (chosen, top) = logprobs(row, tokens[place], 3);
            assert!((found.unwrap() - f64::from(chosen.logprob)).abs() < 0.05, "{place}: {found:?}, not {chosen:?}");
            let best = logprobs_of["top_logprobs"][place].as_object().unwrap().values().filter_map(Value::as_f64);
            assert!((best.fold(f64::MIN, f64::max) - f64::from(top[0].logprob)).abs() < 0.05, "{place}: {json}");
        }
        assert_eq!(logprobs_of["top_logprobs"][0], Value::Null);
        let names: Vec<&str> = logprobs_of["tokens"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(
            (names.concat().as_str(), &choice["finish_reason"]),
            (choice["text"].as_str().unwrap(), &"length".into())
        );
        let offsets: Vec<u64> =
            logprobs_of["text_offset"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
        assert_eq!((offsets[0], offsets[1], offsets.len()), (0, names[0].chars().count() as u64, tokens.len()));
        assert_eq!(
            json["usage"],
            json!({
                "prompt_tokens": tokens.len(), "completion_tokens": 0, "total_tokens": tokens.len(),
                "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 0},
            })
        );
    }
}

/// As lm-eval reads it: the last token is the generated one, whatever it is, and those before it are the prompt's.
#[test]
fn extended_every_prompt_of_a_batch_is_followed_by_one_token() {
    let serving = shared();
    let ends = serving.post("/tokenize", &json!({"content": "<|user|>"})).json()["tokens"].clone();
    let encode = |text: &str| serving.post("/tokenize", &json!({"content": text})).json()["tokens"].clone();
    let prompts: Vec<Value> =
        (0..5).map(|number| encode(&format!("An owl sat on branch {number} and said twoo."))).collect();
    for (bias, end) in [(serving.endless()["logit_bias"].clone(), "length"), (json!([[ends[0], 1000]]), "stop")] {
        let mut body = scored(prompts.clone());
        body["logit_bias"] = bias;
        let json = serving.post("/v1/completions", &body).json();
        let choices = json["choices"].as_array().unwrap();
        assert_eq!(choices.len(), prompts.len(), "more than --max-choices");
        for (choice, prompt) in choices.iter().zip(&prompts) {
            let found = numbers(&choice["logprobs"]["token_logprobs"]);
            assert_eq!((found.len(), &choice["finish_reason"]), (prompt.as_array().unwrap().len() + 1, &end.into()));
            assert!(found.iter().skip(1).all(|logprob| logprob.is_some_and(|logprob| logprob <= 0.0)), "{choice}");
        }
        body["prompt"] = prompts[4].clone();
        let alone = serving.post("/v1/completions", &body).json()["choices"][0]["logprobs"]["token_logprobs"].clone();
        let pairs = numbers(&alone).into_iter().zip(numbers(&choices[4]["logprobs"]["token_logprobs"])).skip(1);
        assert!(pairs.clone().all(|(a, b)| (a.unwrap() - b.unwrap()).abs() < 0.05), "{:?}", pairs.collect::<Vec<_>>());
    }
    for (prompts, max_tokens) in [(65, 1), (5, 2)] {
        let mut body = scored(vec![json!("An owl"); prompts]);
        body["max_tokens"] = max_tokens.into();
        assert_eq!(serving.post("/v1/completions", &body).status, 400, "{prompts} prompts");
    }
}

#[test]
fn extended_a_stream_begins_with_the_prompt_and_its_log_probabilities() {
    let serving = shared();
    let mut body =
        json!({"prompt": "Once upon a time", "max_tokens": 3, "temperature": 0, "echo": true, "logprobs": 2});
    let whole = serving.post("/v1/completions", &body).json()["choices"][0].clone();
    body["stream"] = true.into();
    let events = serving.post("/v1/completions", &body).events();
    let choices = || events.iter().filter_map(|event| event["choices"].get(0));
    assert_eq!(choices().next().unwrap()["text"], "Once upon a time");
    let text: String = choices().filter_map(|choice| choice["text"].as_str()).collect();
    assert_eq!(text, whole["text"].as_str().unwrap());
    for field in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        let of = |choice: &Value| choice["logprobs"][field].as_array().cloned().unwrap_or_default();
        let streamed: Vec<Value> = choices().flat_map(of).collect();
        assert_eq!(streamed.len(), of(&whole).len(), "{field}");
        if field == "tokens" || field == "text_offset" {
            assert_eq!(streamed, of(&whole));
        }
    }
}

/// Log-probabilities count as memory of the request, so that a client cannot take more than its part.
#[test]
fn log_probabilities_that_need_too_much_memory_are_refused() {
    let mut body = scored(vec![json!("An owl sat on a branch. ".repeat(80)); 64]);
    body["logprobs"] = 20.into();
    let answer = shared().post("/v1/completions", &body);
    assert!(answer.status == 413 && answer.text().contains("--max-memory"), "{}", answer.text());
}

/// The requests of lm-eval's remote tokenizer, whose forms are those of vLLM's server.
#[test]
fn the_tokenizer_is_described_and_used_by_remote_programs() {
    let serving = shared();
    let info = serving.get("/tokenizer_info").json();
    assert!(info["chat_template"].as_str().unwrap().contains("user"), "{info}");
    let end = info["eos_token"].as_str().unwrap();
    for (text, name) in [("An owl sat. ä€😀", "prompt"), (end, "prompt"), ("", "prompt")] {
        let body = json!({name: text, "add_special_tokens": false});
        let tokenized = serving.post("/tokenize", &body).json();
        let tokens = tokenized["tokens"].as_array().unwrap();
        assert_eq!((&tokenized["count"], &tokenized["max_model_len"]), (&tokens.len().into(), &1024.into()));
        let text_again = serving.post("/detokenize", &json!({"tokens": tokens})).json();
        assert_eq!((&text_again["prompt"], &text_again["content"]), (&text.into(), &text.into()));
        assert!(text != end || tokens.len() == 1, "{tokens:?}");
    }
    for body in [json!({}), json!({"prompt": "a", "content": "a"})] {
        assert_eq!(serving.post("/tokenize", &body).status, 400);
    }
    assert_eq!(serving.post("/tokenize", &json!({"content": "owl"})).json().as_object().unwrap().len(), 1);
}
