//! Tests simultaneous clients: none delays another, takes its share, or can find out what it sent.

// Some tests are only for Linux, where a machine has all addresses of 127.0.0.0/8.
#![cfg_attr(not(target_os = "linux"), allow(dead_code, unused_imports))]

use super::client::{Answer, ask, request};
use super::{SOON, Serving, question, wait_for};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The number of tokens that a slow reader requests: more than the buffers between it and its reply hold, which was
/// about 230.
const TOKENS: usize = 300;

/// Asks a question with a key, and expects an answer.
fn asked(serving: &Serving, key: &str, body: &Value) -> Value {
    let headers = [("content-type", "application/json"), ("x-api-key", key)];
    let answer = ask(&serving.address, "POST", "/v1/chat/completions", &headers, body.to_string().as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// A client with small buffers that has requested a stream of [`TOKENS`] tokens, each with all log-probabilities, and
/// has read two bytes of it.
fn slow_reader(serving: &Serving) -> TcpStream {
    let mut body = serving.endless();
    (body["max_tokens"], body["logprobs"], body["top_logprobs"]) = (TOKENS.into(), true.into(), 20.into());
    body["messages"] = json!([{"role": "user", "content": body["prompt"]}]);
    let bytes = request(&serving.address, "POST", "/v1/chat/completions", &[], body.to_string().as_bytes());
    let mut slow = connect_with(serving, 1, Some(2048));
    slow.write_all(&bytes).unwrap();
    slow.read_exact(&mut [0; 2]).unwrap();
    slow
}

/// A longer wait, for hundreds of tokens.
fn wait_long_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < 5 * SOON, "{what}: not after {:?}", 5 * SOON);
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The reply to a client that does not read it ends anyway, and then the only slot is free.
#[test]
fn extended_a_slow_reader_delays_no_one() {
    let serving = Serving::start(&["-np", "1", "--io-timeout", "600"]);
    let mut slow = slow_reader(&serving);
    wait_long_for("the end of its reply", || serving.figure("replies") == 0);
    let started = serving.figure("replies_total");
    assert_eq!(serving.post("/v1/chat/completions", &question()).status, 200);
    assert_eq!((started, serving.figure("clients_gone_total")), (1, 0), "the slow one is still there");
    // The unread part is available to the end.
    let mut came = b"HT".to_vec();
    slow.read_to_end(&mut came).unwrap();
    let answer = Answer::read(&came).unwrap();
    let tokens = answer.events().iter().filter(|event| event["choices"][0]["logprobs"].is_object()).count();
    assert!(answer.status == 200 && tokens > 4 * TOKENS / 5 && came.len() > 1000 * TOKENS, "{tokens} tokens");
    assert_eq!(answer.events().last(), Some(&"[DONE]".into()));
}

/// A client that reads nothing is disconnected, and its reply ends.
#[test]
fn extended_clients_that_read_nothing_are_disconnected() {
    let serving = Serving::start(&["--io-timeout", "1", "-np", "1"]);
    let mut slow = slow_reader(&serving);
    wait_long_for("the client to be left", || serving.figure("clients_gone_total") == 1);
    wait_for("the end of its reply", || serving.figure("replies") == 0);
    let mut came = Vec::new();
    let _ = slow.read_to_end(&mut came);
    assert!(!came.ends_with(b"0\r\n\r\n"), "{} bytes, which is all", came.len());
}

/// Key B is answered as if key A had sent nothing, unless the cache is shared.
#[test]
fn extended_a_prompt_stays_with_its_key() {
    let secret = |number: &str| {
        let text = format!("The number is {number}. {}", "An owl sat on a branch and looked at a hill. ".repeat(4));
        json!({"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 1})
    };
    let cached = |body: &Value| body["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    let keys = ["--api-key", "anna", "--api-key", "ben"];
    let serving = Serving::start(&[&keys[..], &["-np", "3"]].concat());
    let told = asked(&serving, "anna", &secret("4711"));
    let prompt = told["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(cached(&told) == 0 && prompt > 80, "{told}");
    assert_eq!(cached(&asked(&serving, "ben", &secret("4711"))), 0, "what the other key sent");
    assert_eq!(cached(&asked(&serving, "anna", &secret("4711"))), prompt - 1, "its own");
    assert_eq!(cached(&asked(&serving, "ben", &secret("4711"))), prompt - 1, "its own by now");
    let sharing = Serving::start(&[&keys[..], &["--share-cache"]].concat());
    asked(&sharing, "anna", &secret("4711"));
    assert_eq!(cached(&asked(&sharing, "ben", &secret("4711"))), prompt - 1);
}

/// A key with twenty waiting requests delays only its own.
#[test]
fn extended_keys_take_turns() {
    let serving = Serving::start(&["-np", "1", "--api-key", "anna", "--api-key", "ben"]);
    let body = json!({"messages": question()["messages"], "temperature": 0, "max_tokens": 8});
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (serving, body, done) = (&serving, &body, &done);
        for _ in 0..20 {
            scope.spawn(move || {
                asked(serving, "anna", body);
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        let metrics = || ask(&serving.address, "GET", "/metrics", &[("x-api-key", "ben")], b"").text();
        // Before the first is answered, most of them wait.
        wait_for("a queue", || {
            metrics().lines().any(|line| line == "wglm_replies 20") || done.load(Ordering::SeqCst) > 0
        });
        let before = done.load(Ordering::SeqCst);
        asked(serving, "ben", body);
        let after = done.load(Ordering::SeqCst);
        assert!(before < 10 && after < 20, "{before} were answered before, {after} after");
    });
}

/// A connection from an address of this machine's own network.
fn connect_from(serving: &Serving, last: u8) -> TcpStream {
    connect_with(serving, last, None)
}

/// The same, with a buffer for at most this many unread bytes.
fn connect_with(serving: &Serving, last: u8, holds: Option<u32>) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let (own, server) = (SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0)), serving.address.parse().unwrap());
    let connected = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind(own)?;
        holds.map_or(Ok(()), |bytes| socket.set_recv_buffer_size(bytes))?;
        socket.connect(server).await
    });
    let stream = connected.and_then(tokio::net::TcpStream::into_std).unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

/// A connection with a request of which the server has read the head, and waits for the body.
fn half(serving: &Serving, last: u8) -> TcpStream {
    let mut stream = connect_from(serving, last);
    let head = "POST /tokenize HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 50\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let (mut status, expected) = ([0; 12], b"HTTP/1.1 100");
    stream.read_exact(&mut status).unwrap();
    assert_eq!(&status, expected, "{}", String::from_utf8_lossy(&status));
    stream
}

/// The status of the answer to a request, or to a connection.
fn answered(serving: &Serving, last: u8) -> u16 {
    let mut stream = connect_from(serving, last);
    let _ = stream.write_all(&request(&serving.address, "GET", "/health", &[], b""));
    let mut came = Vec::new();
    let _ = stream.read_to_end(&mut came);
    Answer::read(&came).map_or(0, |answer| answer.status)
}

#[cfg(target_os = "linux")]
#[test]
fn extended_one_address_takes_its_share_of_connections() {
    let serving = Serving::start(&["--max-connections", "8"]);
    let mut slow: Vec<TcpStream> = (0..4).map(|_| half(&serving, 1)).collect();
    assert_eq!((answered(&serving, 1), answered(&serving, 2)), (429, 200));
    slow.extend((0..4).map(|_| half(&serving, 2)));
    assert_eq!(answered(&serving, 3), 503, "and not left to wait");
    drop(slow);
    wait_for("places", || answered(&serving, 1) == 200 && answered(&serving, 3) == 200);
    // An idle connection is closed for one with a request.
    let idle: Vec<TcpStream> = (0..8).map(|number| connect_from(&serving, 1 + number / 4)).collect();
    assert_eq!((answered(&serving, 3), answered(&serving, 1)), (200, 200));
    drop(idle);
    // All clients of a proxy have its address.
    let serving = Serving::start(&["--max-connections", "4", "--max-per-client", "0"]);
    let _slow: Vec<TcpStream> = (0..3).map(|_| half(&serving, 1)).collect();
    assert_eq!(answered(&serving, 1), 200);
}

/// A client that fills the queue does not keep out others: its last request is refused in favour of another client's.
#[cfg(target_os = "linux")]
#[test]
fn extended_one_client_does_not_fill_the_queue() {
    let serving = Serving::start_long(&["-np", "1", "--queue", "3", "--max-choices", "8"]);
    let mut body = serving.endless();
    body["stream"] = false.into();
    let send = |last: u8, body: &Value| {
        let text = body.to_string();
        let mut stream = connect_from(&serving, last);
        stream.write_all(&request(&serving.address, "POST", "/v1/completions", &[], text.as_bytes())).unwrap();
        stream
    };
    let mut held = vec![send(1, &body)];
    wait_for("a reply", || serving.figure("requests_processing") == 1);
    for count in 2..=4 {
        held.push(send(1, &body));
        wait_for("one more", || serving.figure("replies") == count);
    }
    let read = |mut stream: TcpStream| {
        let mut came = Vec::new();
        let _ = stream.read_to_end(&mut came);
        Answer::read(&came).map(|answer| answer.status)
    };
    assert_eq!(read(send(1, &body)), Some(429), "its own queue is full");
    let other = send(2, &body);
    let last = held.pop().unwrap();
    assert_eq!(read(last), Some(429), "the newest makes room");
    wait_for("the other one's", || serving.figure("replies") == 4);
    let asked = |count: usize| {
        let mut body = body.clone();
        body["n"] = count.into();
        read(send(2, &body))
    };
    assert_eq!(asked(5), Some(400), "more than there are places");
    assert_eq!((asked(3), serving.figure("replies")), (Some(429), 4), "no reply makes room for a part of a request");
    drop((held, other));
}
