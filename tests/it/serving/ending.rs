//! Tests clients that disconnect, and servers that end.

use super::client::{Answer, connect, request};
use super::{SOON, Serving, wait_for};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// A connection on which a reply without end has begun.
fn begun(serving: &Serving, streams: bool) -> (TcpStream, Vec<u8>) {
    let mut body = serving.endless();
    body["stream"] = streams.into();
    let mut stream = connect(&serving.address);
    let bytes = request(&serving.address, "POST", "/v1/completions", &[], body.to_string().as_bytes());
    stream.write_all(&bytes).unwrap();
    let mut came = Vec::new();
    while streams && came.windows(6).filter(|window| window == b"data: ").count() < 3 {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&came));
        came.extend_from_slice(&piece[..count]);
    }
    wait_for("a reply", || serving.figure("replies") == 1);
    (stream, came)
}

#[test]
fn extended_a_disconnected_client_ends_its_reply() {
    let serving = Serving::start_long(&["-np", "1"]);
    for streams in [true, false] {
        let (stream, _) = begun(&serving, streams);
        wait_for("the reply's turn", || serving.figure("requests_processing") == 1);
        drop(stream);
        let start = Instant::now();
        wait_for("the end", || serving.figure("replies") == 0 && serving.figure("requests_processing") == 0);
        assert!(start.elapsed().as_secs() < 5, "streams: {streams}, {:?}", start.elapsed());
    }
    assert_eq!(serving.figure("clients_gone_total"), 2);
}

#[cfg(unix)]
fn signal(serving: &Serving, name: &str) {
    let sent = std::process::Command::new("kill").args([name, &serving.process.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[cfg(unix)]
fn ended(serving: &mut Serving) -> Option<i32> {
    let start = Instant::now();
    loop {
        if let Some(status) = serving.process.try_wait().unwrap() {
            return status.code();
        }
        assert!(start.elapsed() < SOON, "the server does not end");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[cfg(unix)]
#[test]
fn extended_an_idle_server_ends_at_once() {
    for name in ["-INT", "-TERM"] {
        let mut serving = Serving::start(&[]);
        let idle = connect(&serving.address);
        signal(&serving, name);
        assert_eq!(ended(&mut serving), Some(0), "{name}");
        drop(idle);
    }
}

/// A shell starts background programs of a script like this, and `nohup` any program.
#[cfg(unix)]
#[test]
fn signals_that_were_ignored_stay_ignored() {
    let mut serving = Serving::begin_ignoring("INT HUP", &[]);
    wait_for("the model", || serving.get("/health").status == 200);
    for name in ["-INT", "-HUP"] {
        signal(&serving, name);
        for _ in 0..5 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert_eq!(serving.get("/health").status, 200, "{name}");
        }
    }
    signal(&serving, "-TERM");
    assert_eq!(ended(&mut serving), Some(0));
}

/// After the first Ctrl-C a reply continues, and the second one ends it. Its client gets an error, and so does one
/// whose turn never came.
#[cfg(unix)]
#[test]
fn extended_replies_end_first_and_are_cancelled_by_a_second_signal() {
    let mut serving = Serving::start_long(&["--grace", "100", "-np", "1"]);
    let (mut stream, mut came) = begun(&serving, true);
    let mut body = serving.endless();
    body["stream"] = false.into();
    let mut waiting = connect(&serving.address);
    let bytes = request(&serving.address, "POST", "/v1/completions", &[], body.to_string().as_bytes());
    waiting.write_all(&bytes).unwrap();
    wait_for("one that waits", || serving.figure("requests_deferred") == 1);
    signal(&serving, "-INT");
    wait_for("the door to close", || TcpStream::connect(&serving.address).is_err());
    let mut piece = [0; 4096];
    let count = stream.read(&mut piece).unwrap();
    assert!(count > 0, "the reply goes on");
    came.extend_from_slice(&piece[..count]);
    signal(&serving, "-INT");
    stream.read_to_end(&mut came).unwrap();
    let answer = Answer::read(&came).unwrap();
    let events = answer.events();
    let reasons: Vec<&str> = events.iter().filter_map(|event| event["choices"][0]["finish_reason"].as_str()).collect();
    assert_eq!((reasons, events.last()), (vec!["length"], Some(&"[DONE]".into())));
    let warned = events.iter().filter_map(|event| event["warnings"][0].as_str()).collect::<String>();
    assert!(warned.contains("shutting down"), "{warned}");
    let mut refused = Vec::new();
    waiting.read_to_end(&mut refused).unwrap();
    let refused = Answer::read(&refused).unwrap();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")), "{}", refused.text());
    assert_eq!(ended(&mut serving), Some(130));
}

/// A short reply has enough time to end.
#[cfg(unix)]
#[test]
fn extended_a_reply_may_end_within_the_grace_period() {
    let mut serving = Serving::start(&[]);
    let mut body = serving.endless();
    (body["max_tokens"], body["stream"]) = (40.into(), false.into());
    let mut stream = connect(&serving.address);
    let bytes = request(&serving.address, "POST", "/v1/completions", &[], body.to_string().as_bytes());
    stream.write_all(&bytes).unwrap();
    wait_for("a reply", || serving.figure("replies") == 1);
    signal(&serving, "-TERM");
    let mut came = Vec::new();
    stream.read_to_end(&mut came).unwrap();
    assert_eq!(Answer::read(&came).unwrap().json()["usage"]["completion_tokens"], 40);
    assert_eq!(ended(&mut serving), Some(0));
}
