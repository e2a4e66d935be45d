//! Tests random bodies and requests. Each gets an answer, and the server is unaffected.

use super::client::{Answer, exchange, request};
use super::{Serving, question, shared, wait_for};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};

/// The default number of bodies.
fn cases() -> u32 {
    std::env::var("WGLM_BODIES").ok().and_then(|count| count.parse().ok()).unwrap_or(200)
}

const PATHS: [&str; 8] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/tokenize",
    "/detokenize",
    "/apply-template",
];

/// Names of fields that some interface knows.
const FIELDS: [&str; 34] = [
    "messages",
    "prompt",
    "input",
    "content",
    "tokens",
    "role",
    "type",
    "text",
    "tools",
    "tool_choice",
    "name",
    "function",
    "parameters",
    "arguments",
    "tool_calls",
    "stream",
    "stream_options",
    "n",
    "stop",
    "seed",
    "temperature",
    "top_p",
    "top_k",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "response_format",
    "json_schema",
    "chat_template_kwargs",
    "system",
    "thinking",
    "reasoning",
    "overflow",
    "instructions",
];

fn words() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(
            &["user", "assistant", "system", "tool", "text", "function", "json_object", "auto"][..]
        )
        .prop_map(str::to_owned),
        "\\PC{0,12}",
        Just("\u{0}<|user|></think>".to_owned()),
    ]
}

/// Values of any shape, with known names of fields.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3_i64..4).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        words().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![vec(inner.clone(), 0..4).prop_map(Value::from), object(inner).prop_map(Value::Object)]
    })
}

fn object(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    let name = proptest::sample::select(&FIELDS[..]).prop_map(str::to_owned);
    vec((name, inner), 0..8).prop_map(|fields| fields.into_iter().collect())
}

/// A body: a valid one with random fields, random bytes, or the beginning of a valid one.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let good = || {
        let mut body = question();
        (body["max_tokens"], body["prompt"], body["input"]) = (1.into(), "x".into(), "x".into());
        (body["content"], body["tokens"], body["max_output_tokens"]) = ("x".into(), json!([1]), 1.into());
        body
    };
    let with = move |fields: Map<String, Value>| {
        let mut body = good();
        body.as_object_mut().unwrap().extend(fields);
        body.to_string().into_bytes()
    };
    let cut = move |at: usize| {
        let mut bytes = good().to_string().into_bytes();
        bytes.truncate(at % bytes.len());
        bytes
    };
    prop_oneof![
        6 => object(value()).prop_map(with),
        2 => value().prop_map(|value| value.to_string().into_bytes()),
        1 => any::<usize>().prop_map(cut),
        1 => vec(any::<u8>(), 0..200),
        1 => (1_usize..3000).prop_map(|depth| [b"{\"messages\":".to_vec(), vec![b'['; depth]].concat()),
    ]
}

/// The memory of a process in KiB, if the system reports it.
fn memory(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn extended_any_body_is_answered_without_leaking_memory() {
    let serving = Serving::start(&["--timeout", "5", "--kv-tokens", "4096"]);
    let send = |path: &str, body: &[u8]| {
        let answer = exchange(&serving.address, &request(&serving.address, "POST", path, &[], body));
        Answer::read(&answer).map(|answer| answer.status)
    };
    let run = |cases| {
        let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
        let strategy = (proptest::sample::select(&PATHS[..]), body());
        let told = runner.run(&strategy, |(path, body)| {
            let status = send(path, &body);
            let known = matches!(status, Some(200 | 400 | 413 | 429));
            proptest::prop_assert!(known, "{path}: {status:?} for {}", String::from_utf8_lossy(&body));
            Ok(())
        });
        if let Err(error) = told {
            panic!("{error}");
        }
    };
    run(cases() / 4); // allocates what is allocated once
    let before = memory(serving.process.id());
    run(cases());
    let after = memory(serving.process.id());
    if let (Some(before), Some(after)) = (before, after) {
        println!("{before} KiB before, {after} KiB after");
        assert!(after < before + before / 4 + (64 << 10), "{before} KiB became {after}");
    }
    wait_for("an end of all replies", || serving.figure("replies") == 0);
    assert_eq!(serving.post("/v1/chat/completions", &question()).status, 200);
}

#[test]
fn invalid_requests_do_no_harm() {
    let serving = shared();
    for bytes in [
        &b"\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n",
        b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999999999999\r\n\r\n",
        b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /%ff%00 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: \xff\xfe\r\nconnection: close\r\n\r\n",
    ] {
        let mut stream = super::client::connect(&serving.address);
        std::io::Write::write_all(&mut stream, bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = std::io::Read::read_to_end(&mut stream, &mut answer);
        let status = Answer::read(&answer).map(|answer| answer.status);
        assert!(status.is_none_or(|status| (400..500).contains(&status)), "{bytes:?}: {status:?}");
    }
    let long = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "x".repeat(1 << 17));
    let status = Answer::read(&exchange(&serving.address, long.as_bytes())).map(|answer| answer.status);
    assert!(status.is_none_or(|status| (400..500).contains(&status)), "{status:?}");
    assert_eq!(serving.get("/health").status, 200);
}
