//! Tests the processes in which a server first compiles schemas: their limits, their number, and that none is left.
//! Only Linux shows that.

use super::client::{connect, request};
use super::schemas::{asking, is_alive};
use super::{Serving, wait_for};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A request whose schema makes the process that compiles it exhaust a resource, or wait.
fn faulty(fault: &str, seed: usize) -> Value {
    asking(&json!({"type": "integer", "maximum": seed, "$comment": fault}))[0].1.clone()
}

/// A process that takes too much ends, and the client gets an error; the next client gets the same error without a
/// process. Two processes run at a time, and some requests wait for one; more are told to retry. The processes of
/// disconnected clients end.
#[test]
fn extended_processes_end_at_their_limits() {
    let serving = Serving::start_with(&["--max-per-client", "0"], &[("WGLM_COMPILE_FAULT", "1")]);
    for fault in ["memory", "time", "stack"] {
        for _ in 0..2 {
            let answer = serving.post("/v1/chat/completions", &faulty(fault, 9));
            assert_eq!(answer.status, 400, "{fault}: {}", answer.text());
            assert!(answer.text().contains("too complex"), "{fault}: {}", answer.text());
        }
    }
    let figures = ["schema_processes_total", "schema_limits_total", "schemas_known_total"];
    assert_eq!(figures.map(|name| serving.figure(name)), [3, 3, 3]);
    assert_eq!(processes_of(&serving), 0);
    waiting_clients(&serving, 18, "HTTP/1.1 503");
}

/// A client that lets processes wait leaves half of the places to others.
#[test]
fn extended_a_client_has_half_of_the_places_for_schemas() {
    let serving = Serving::start_with(&[], &[("WGLM_COMPILE_FAULT", "1")]);
    waiting_clients(&serving, 9, "HTTP/1.1 429");
}

/// The number of a server's child processes that are running or have not been waited for.
fn processes_of(serving: &Serving) -> usize {
    let of = serving.process.id().to_string();
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let parent = |process: &String| {
        let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        text.rsplit_once(')')?.1.split_whitespace().nth(1).map(str::to_owned)
    };
    all.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|process| parent(process).as_ref() == Some(&of))
        .count()
}

/// Fills the places of requests that wait for their schemas. One more gets this status.
fn waiting_clients(serving: &Serving, places: usize, status: &str) {
    let ask = |seed: usize| -> TcpStream {
        let mut connection = connect(&serving.address);
        let body = faulty("wait", seed).to_string();
        let headers = [("content-type", "application/json")];
        connection
            .write_all(&request(&serving.address, "POST", "/v1/chat/completions", &headers, body.as_bytes()))
            .unwrap();
        connection
    };
    let mut waiting: Vec<TcpStream> = (0..places).map(ask).collect();
    wait_for("two processes", || processes_of(serving) == 2);
    let mut seed = places;
    wait_for("a full queue", || {
        seed += 1;
        let mut connection = ask(seed);
        connection.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut answer = [0; 512];
        let read = connection.read(&mut answer).unwrap_or(0);
        let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
        if read == 0 {
            waiting.push(connection);
            return false;
        }
        assert!(answer.starts_with(status) && answer.to_lowercase().contains("retry-after: 1"), "{answer}");
        true
    });
    is_alive(serving); // requests without a schema are answered meanwhile
    drop(waiting);
    wait_for("no process", || processes_of(serving) == 0);
}
