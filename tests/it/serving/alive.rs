//! Tests that a stream is never silent: clients get signs of life in the form that each interface counts, and the
//! progress of prompts if they ask for it. When they get them is tested without a clock, beside the stream's code.

use super::client::{connect, request};
use super::{Serving, wait_for};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

/// A text of 70 tokens, so that it is computed in several steps.
fn long() -> String {
    (0..5).map(|number| format!("The fox has {number} hens and a red boat. ")).collect()
}

/// Sends a request and reads its answer until a text appears.
pub(super) fn wait_in(serving: &Serving, path: &str, body: &Value, text: &str) -> TcpStream {
    let mut stream = connect(&serving.address);
    let headers = [("content-type", "application/json")];
    stream.write_all(&request(&serving.address, "POST", path, &headers, body.to_string().as_bytes())).unwrap();
    let (mut came, mut piece) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&came).contains(text) {
        let length = stream.read(&mut piece).unwrap();
        assert!(length > 0, "{path}: no {text} in {}", String::from_utf8_lossy(&came));
        came.extend_from_slice(&piece[..length]);
    }
    stream
}

/// A request that waits for its turn gets signs of life, in the form of each interface.
#[test]
fn a_request_that_waits_is_not_silent() {
    let serving = Serving::start_long(&["--silence", "1", "--parallel", "1"]);
    let messages = json!([{"role": "user", "content": "Hi."}]);
    let body = json!({"messages": messages, "input": messages, "prompt": "Hi.", "stream": true, "max_tokens": 8});
    for (path, sign) in [
        ("/v1/chat/completions", "\"delta\":{},"),
        ("/v1/responses", "\"response.in_progress\",\"sequence_number\":2"),
        ("/v1/messages", "event: ping"),
        ("/v1/completions", ": waiting"),
        ("/api/chat", "\"content\":\"\"},\"done\":false"),
        ("/api/generate", "\"response\":\"\",\"done\":false"),
    ] {
        let running = wait_in(&serving, "/v1/completions", &serving.endless(), "\"text\"");
        drop(wait_in(&serving, path, &body, sign));
        drop(running);
        wait_for("the end of both replies", || serving.figure("replies") == 0);
    }
}

#[test]
fn extended_the_progress_of_a_prompt_is_reported_on_request() {
    let serving = Serving::start(&[]);
    let messages = |text: &str| json!([{"role": "user", "content": format!("{text} {}", long())}]);
    let progress = |path: &str, mut body: Value| -> Vec<Value> {
        (body["stream"], body["max_tokens"], body["return_progress"]) = (true.into(), 2.into(), true.into());
        let events = serving.post(path, &body).events();
        events
            .iter()
            .filter(|event| event["prompt_progress"].is_object())
            .map(|event| event["prompt_progress"].clone())
            .collect()
    };
    for (path, body) in [
        ("/v1/chat/completions", json!({"messages": messages("A")})),
        ("/v1/responses", json!({"input": messages("B")})),
        ("/v1/messages", json!({"messages": messages("C")})),
        ("/v1/completions", json!({"prompt": format!("D {}", long())})),
    ] {
        let [first, .., last] = &progress(path, body.clone())[..] else { panic!("{path}: fewer than two reports") };
        let number = |report: &Value, name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{path}: {report}"));
        assert_eq!(number(first, "processed"), number(first, "cache"), "{path}");
        assert_eq!(number(last, "processed"), number(last, "total"), "{path}");
        assert!(number(last, "total") > 64 && number(last, "cache") < 25, "{path}: {last}");
        assert!(number(first, "time_ms") <= number(last, "time_ms"));
        // The second time the cache has it.
        let again = progress(path, body);
        assert!(number(&again[0], "cache") > 64, "{path}: {again:?}");
    }
    let silent =
        serving.post("/v1/chat/completions", &json!({"messages": messages("E"), "stream": true, "max_tokens": 1}));
    assert!(silent.status == 200 && !silent.text().contains("prompt_progress"));
}
