//! Tests what the server refuses, and how long it waits.

use super::client::{Answer, connect, exchange, request};
use super::{Serving, question, shared, wait_for};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

#[test]
fn invalid_requests_are_refused_with_the_reason() {
    let serving = shared();
    let with = |field: &str, value: Value| {
        let mut body = question();
        body[field] = value;
        body
    };
    let picture = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]);
    for (body, reason) in [
        (with("messages", json!([])), "no messages"),
        (with("messages", json!("Hi")), "messages: expected a list, found \"Hi\""),
        (with("messages", picture), "text only"),
        (with("messages", json!([{"role": "wizard", "content": "Hi"}])), "wizard"),
        (with("messages", json!([{"role": "user", "content": [3]}])), "expected text"),
        (with("temperature", json!(-1)), "temperature"),
        (with("temperature", json!("hot")), "temperature: expected a number, found \"hot\""),
        (with("top_p", json!(2)), "top_p"),
        (with("n", json!(0)), "from 1 to 4"),
        (with("n", json!(5)), "from 1 to 4"),
        (with("max_tokens", json!(-5)), "max_tokens"),
        (with("stop", json!([""])), "stop"),
        (with("stop", json!(vec!["x"; 65])), "at most 64"),
        (with("grammar", json!("root ::= \"x\"")), "grammar"),
        (with("logit_bias", json!({"99999999": 1})), "logit_bias"),
        (with("logit_bias", json!({"": 1})), "logit_bias"),
        (with("tool_choice", json!("perhaps")), "tool_choice"),
        (with("response_format", json!({"type": "xml"})), "response_format"),
        (with("tools", json!([{"type": "function"}])), "tools"),
        (with("chat_template_kwargs", json!({"enable_thinking": "no"})), "enable_thinking"),
        (json!({}), "messages: this field is missing"),
    ] {
        let answer = serving.post("/v1/chat/completions", &body);
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(answer.status == 400 && message.contains(reason), "{body}: {} {message}", answer.status);
    }
    let logprobs = json!({"messages": question()["messages"], "logprobs": true, "top_logprobs": 21});
    assert_eq!(serving.post("/v1/chat/completions", &logprobs).status, 400);
    for body in [
        json!({"prompt": "x", "suffix": "y"}),
        json!({"prompt": []}),
        json!({"prompt": [[9_999_999]]}),
        json!({"prompt": "x", "response_format": {"type": "json_object"}}),
        json!({"prompt": "x", "response_format": {"type": "xml"}}),
        json!({"prompt": "x", "json_schema": {"type": "integer"}}),
    ] {
        assert_eq!(serving.post("/v1/completions", &body).status, 400, "{body}");
    }
    let text = json!({"prompt": "x", "max_tokens": 1, "response_format": {"type": "text"}, "json_schema": null});
    assert_eq!(serving.post("/v1/completions", &text).status, 200, "text is what completions are");
}

#[test]
fn extended_long_requests_are_refused() {
    let serving = shared();
    let long = json!({"messages": [{"role": "user", "content": "owl ".repeat(3000)}]});
    let answer = serving.post("/v1/chat/completions", &long);
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &"context_length_exceeded".into()));
    let prompt = json!({"prompt": "owl ".repeat(3000), "overflow": "drop_oldest"});
    let answer = serving.post("/v1/completions", &prompt);
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &"context_length_exceeded".into()));
    let anthropic = json!({"max_tokens": 5, "messages": long["messages"]});
    let answer = serving.post("/v1/messages", &anthropic);
    assert!(answer.text().contains("prompt is too long"), "{}", answer.text());
    let small = Serving::start(&["--max-body", "16", "--max-messages", "3"]);
    let answer =
        small.post("/v1/chat/completions", &json!({"messages": [{"role": "user", "content": "x".repeat(1 << 15)}]}));
    assert_eq!(answer.status, 413);
    let chunked =
        b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    let body = [b"8000\r\n".to_vec(), vec![b' '; 0x8000], b"\r\n0\r\n\r\n".to_vec()].concat();
    let answer = exchange(&small.address, &[&chunked[..], &body].concat());
    assert_eq!(Answer::read(&answer).map(|answer| answer.status), Some(413));
    let answer = exchange(&small.address, &[&chunked[..], b"zz\r\n"].concat());
    assert_eq!(Answer::read(&answer).map(|answer| answer.status), Some(400), "which is not too long");
    let many = json!({"messages": vec![json!({"role": "user", "content": "x"}); 4]});
    assert!(small.post("/v1/chat/completions", &many).text().contains("at most 3"));
}

/// The memory of all bodies is counted while they arrive, and is free again when they have been read.
#[test]
fn extended_bodies_do_not_fill_memory() {
    let serving = Serving::start(&["--max-body", "16384"]);
    let head = b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 16700000\r\n\r\n";
    let mut halves: Vec<_> = (0..4).map(|_| connect(&serving.address)).collect();
    halves.iter_mut().for_each(|stream| stream.write_all(&[&head[..], &vec![b' '; 16_699_999][..]].concat()).unwrap());
    // Until they are read, so that they do not take memory from the next one.
    std::thread::sleep(Duration::from_secs(1));
    let long = vec![b' '; 350_000];
    let ask = || {
        let answer = exchange(&serving.address, &request(&serving.address, "POST", "/tokenize", &[], &long));
        Answer::read(&answer).map(|answer| answer.status)
    };
    wait_for("a refusal", || ask() == Some(503));
    assert_eq!(serving.post("/tokenize", &json!({"content": "owl"})).status, 200, "there is room for a short one");
    halves.iter_mut().for_each(|stream| stream.write_all(b" ").unwrap());
    wait_for("room", || ask() == Some(400));
}

#[test]
fn the_oldest_turns_are_dropped_on_request() {
    let turn = |text: &str| json!({"role": "user", "content": text});
    let said = json!({"role": "assistant", "content": "Yes."});
    let messages = json!([turn(&"owl ".repeat(1500)), said, turn("What is one plus two?")]);
    let mut body = json!({"messages": messages, "max_tokens": 4, "temperature": 0});
    assert_eq!(shared().post("/v1/chat/completions", &body).status, 400);
    body["overflow"] = "drop_oldest".into();
    let json = shared().post("/v1/chat/completions", &body).json();
    assert!(json["warnings"][0].as_str().unwrap().contains("the 2 oldest messages were dropped"), "{json}");
    assert!(json["usage"]["prompt_tokens"].as_u64().unwrap() < 200);
}

#[test]
fn extended_requests_beyond_the_queue_are_refused() {
    let serving = Serving::start_long(&["-np", "1", "--queue", "1"]);
    let endless = serving.endless().to_string();
    let bytes = request(&serving.address, "POST", "/v1/completions", &[], endless.as_bytes());
    let mut running: Vec<_> = (0..2).map(|_| connect(&serving.address)).collect();
    running.iter_mut().for_each(|stream| stream.write_all(&bytes).unwrap());
    wait_for("two replies", || serving.figure("replies") == 2);
    let refused = serving.post("/v1/chat/completions", &question());
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!(refused.json()["error"]["code"], "rate_limit_exceeded");
    assert_eq!(serving.figure("requests_refused_total"), 1);
    let ready = serving.get("/ready");
    assert!(ready.status == 503 && ready.text().contains("the queue is full (1 waiting)"), "{}", ready.text());
    assert_eq!(serving.get("/health").status, 200);
    drop(running);
    wait_for("room", || serving.post("/v1/chat/completions", &question()).status == 200);
}

#[test]
fn extended_a_reply_ends_when_its_time_is_over() {
    let serving = Serving::start_long(&["--timeout", "2"]);
    let mut body = serving.endless();
    body["stream"] = false.into();
    let start = Instant::now();
    let json = serving.post("/v1/completions", &body).json();
    assert!((1.5..9.0).contains(&start.elapsed().as_secs_f64()), "{:?}", start.elapsed());
    assert_eq!(json["choices"][0]["finish_reason"], "length");
    assert!(json["warnings"][0].as_str().unwrap().contains("time limit"), "{json}");
}

#[test]
fn extended_silent_clients_are_disconnected() {
    let serving = Serving::start(&["--io-timeout", "1", "-np", "2"]);
    // Half a head, then half a body.
    for half in [
        "GET /health HTTP/1.1\r\nhost: loc",
        "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n{",
    ] {
        let (mut stream, mut answer) = (connect(&serving.address), Vec::new());
        stream.write_all(half.as_bytes()).unwrap();
        let ended = stream.read_to_end(&mut answer).map_err(|error| error.kind());
        assert!(matches!(ended, Ok(_) | Err(ErrorKind::ConnectionReset)), "{half:?}: {ended:?}");
        let status = Answer::read(&answer).map(|answer| answer.status);
        assert!(status.is_none_or(|status| status == 408), "{half:?}: {status:?}");
    }
    // A client that does not read its answer, which exceeds the system's buffers.
    let content = json!({"content": "owl ".repeat(500_000), "with_pieces": true}).to_string();
    let bytes = request(&serving.address, "POST", "/tokenize", &[], content.as_bytes());
    let mut slow = connect(&serving.address);
    slow.write_all(&bytes).unwrap();
    slow.peek(&mut [0]).unwrap(); // the answer begins
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(serving.get("/health").status, 200, "others are answered meanwhile");
    let mut taken = Vec::new();
    let _ = slow.read_to_end(&mut taken);
    let answer = Answer::read(&taken).unwrap();
    let whole: usize = answer.header("content-length").unwrap().parse().unwrap();
    assert!(answer.body.len() < whole, "all {whole} bytes were taken after the time");
}
