//! Tests edge cases of HTTP: hosts, connections that are closed on one side, and answers to clients that are still
//! sending.

use super::client::{Answer, connect, exchange, request};
use super::{Serving, question, shared, wait_for};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::Shutdown;

fn status(address: &str, text: &str) -> Option<u16> {
    Answer::read(&exchange(address, text.as_bytes())).map(|answer| answer.status)
}

#[test]
fn a_request_names_one_host() {
    let serving = shared();
    let get = |version: &str, headers: &str| {
        status(&serving.address, &format!("GET /health {version}\r\n{headers}connection: close\r\n\r\n"))
    };
    for (version, headers, wanted) in [
        ("HTTP/1.1", "host: localhost\r\n", 200),
        ("HTTP/1.0", "", 200),
        ("HTTP/1.1", "", 400),
        ("HTTP/1.1", "host: localhost\r\nhost: localhost\r\n", 400),
        ("HTTP/1.0", "host: localhost\r\nhost: evil.example\r\n", 400),
        ("HTTP/1.1", "host: localhost.:80\r\n", 200),
        ("HTTP/1.1", "host: [::1]:80\r\n", 200),
        ("HTTP/1.1", "host: [::1].evil.example\r\n", 400),
        ("HTTP/1.1", "host: 127.0.0.1@evil.example\r\n", 400),
        ("HTTP/1.1", "host: evil.example\r\n", 403),
    ] {
        assert_eq!(get(version, headers), Some(wanted), "{version} {headers:?}");
    }
    let line = "GET http://evil.example/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert_eq!(status(&serving.address, line), Some(403));
}

#[test]
fn forms_and_pictures_of_other_pages_are_refused() {
    let serving = shared();
    let ask = |method, headers: &[(&str, &str)], body: &[u8]| {
        let path = if method == "GET" { "/v1/models" } else { "/tokenize" };
        super::client::ask(&serving.address, method, path, headers, body).status
    };
    let (form, body) = (("content-type", "text/plain"), b"{\"content\": \"owl\"}");
    let own = format!("http://{}", serving.address);
    assert_eq!(ask("POST", &[("content-type", "application/x-www-form-urlencoded")], body), 200, "curl -d");
    assert_eq!(ask("POST", &[], body), 200);
    assert_eq!(ask("POST", &[form, ("origin", &own)], body), 415);
    assert_eq!(ask("POST", &[form, ("sec-fetch-site", "none")], body), 415);
    assert_eq!(ask("POST", &[("sec-fetch-site", "cross-site")], body), 403);
    assert_eq!(ask("GET", &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")], b""), 403);
    assert_eq!(ask("GET", &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], b""), 200);
}

/// A client that closes its side after its request, as `nc -N` does, gets its answer.
#[test]
fn extended_a_half_closed_client_gets_its_answer() {
    let serving = shared();
    let mut body = question();
    for streams in [false, true] {
        body["stream"] = streams.into();
        let text = body.to_string();
        let bytes = request(&serving.address, "POST", "/v1/chat/completions", &[], text.as_bytes());
        let mut stream = connect(&serving.address);
        stream.write_all(&bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut came = Vec::new();
        stream.read_to_end(&mut came).unwrap();
        // Interim answers are skipped.
        let last = came.windows(9).rposition(|window| window == b"HTTP/1.1 ").unwrap();
        let before = String::from_utf8_lossy(&came[..last]).into_owned();
        assert_eq!(before.replace("HTTP/1.1 100 Continue\r\n\r\n", ""), "");
        let answer = Answer::read(&came[last..]).unwrap();
        assert_eq!(answer.status, 200);
        if streams {
            assert_eq!(answer.events().last(), Some(&"[DONE]".into()));
        } else {
            assert_eq!(answer.json()["choices"][0]["finish_reason"], "stop");
        }
    }
}

/// A client that is gone differs from one that has closed its side: its reply ends, even one that waits for its turn.
#[test]
fn extended_a_client_that_is_gone_ends_its_reply() {
    let serving = Serving::start_long(&["-np", "1"]);
    let mut held = connect(&serving.address);
    let endless = serving.endless();
    held.write_all(&request(&serving.address, "POST", "/v1/completions", &[], endless.to_string().as_bytes())).unwrap();
    wait_for("a reply", || serving.figure("requests_processing") == 1);
    for (streams, version) in [(true, "HTTP/1.1"), (false, "HTTP/1.1"), (false, "HTTP/1.0")] {
        let mut body = endless.clone();
        body["stream"] = streams.into();
        let bytes = request(&serving.address, "POST", "/v1/completions", &[], body.to_string().as_bytes());
        let text = String::from_utf8(bytes).unwrap().replacen("HTTP/1.1", version, 1);
        let mut stream = connect(&serving.address);
        stream.write_all(text.as_bytes()).unwrap();
        wait_for("one that waits", || serving.figure("requests_deferred") == 1);
        drop(stream);
        wait_for("its end", || serving.figure("requests_deferred") == 0 && serving.figure("replies") == 1);
    }
}

/// A client that sends far more than allowed, and reads nothing until it has sent everything, gets the reason of the
/// refusal.
#[test]
fn extended_a_client_that_sends_too_much_gets_the_reason() {
    let serving = Serving::start(&["--max-body", "64"]);
    let body = vec![b' '; 20 << 20];
    let head = |rest: &str| format!("POST /tokenize HTTP/1.1\r\nhost: localhost\r\n{rest}\r\n\r\n").into_bytes();
    let known = [head(&format!("content-length: {}", body.len())), body.clone()].concat();
    let chunk = [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    for bytes in [known, [head("transfer-encoding: chunked"), chunk].concat()] {
        let mut stream = connect(&serving.address);
        stream.write_all(&bytes).expect("all of it is taken");
        let mut came = Vec::new();
        stream.read_to_end(&mut came).unwrap();
        let answer = Answer::read(&came).unwrap();
        assert_eq!(answer.status, 413, "{}", answer.text());
    }
    assert_eq!(serving.post("/tokenize", &json!({"content": "owl"})).status, 200);
}

#[test]
fn extended_a_head_has_a_time_limit() {
    let serving = Serving::start(&["--io-timeout", "2"]);
    let mut stream = connect(&serving.address);
    let mut trickles = |byte: &[u8]| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        stream.write_all(byte).is_ok()
    };
    // Each byte arrives well within the time limit, but the request is never complete.
    let count = (0..2000).take_while(|_| trickles(b"x")).count();
    assert!((10..2000).contains(&count), "{count} bytes of a head were taken");
}

#[test]
fn keys_that_no_client_can_send_are_refused() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all("first\n# of Anna\n".as_bytes()).unwrap();
    let path = file.path().to_str().unwrap();
    for (args, reason) in [
        (["--api-key-file", path], format!("{path}: line 2: ")),
        (["--api-key", "schlüssel"], "byte 5 of the key is 0xc3".to_owned()),
        (["--api-key", " first"], "begins or ends with a space".to_owned()),
    ] {
        let ended = Serving::command(&args).stderr(std::process::Stdio::piped()).output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success() && told.contains(&reason), "{args:?}: {told}");
    }
}

/// The description of the paths has each of them, with the methods that it allows.
#[test]
fn every_path_is_described() {
    let description = shared().get("/openapi.json").json();
    assert_eq!(description["info"]["version"], env!("CARGO_PKG_VERSION"));
    let paths = description["paths"].as_object().unwrap();
    let router = include_str!("../../../command/src/serve/router.rs");
    let quoted = router.split('"').skip(1).step_by(2).filter(|text| text.starts_with('/'));
    let routed: BTreeSet<String> = quoted.map(|path| path.replace("{*", "{")).collect();
    assert_eq!(routed, paths.keys().cloned().collect());
    for (path, item) in paths {
        // A second name of a path refers to the first.
        let item = item["$ref"].as_str().map_or(item, |first| description.pointer(&first[1..]).unwrap());
        for method in ["GET", "POST", "DELETE"] {
            let answer = super::client::ask(&shared().address, method, &path.replace("{id}", "0"), &[], b"");
            let is_described = !item[method.to_lowercase()].is_null();
            assert_eq!(answer.status != 405, is_described, "{method} {path}: {}", answer.text());
        }
    }
    for path in ["/v1/models/%ff", "/v1/responses/%ff"] {
        let answer = shared().get(path);
        assert!(answer.status == 400 && answer.json()["error"]["message"].is_string(), "{path}: {}", answer.text());
    }
    let mut open: Vec<&Value> = vec![&description];
    while let Some(value) = open.pop() {
        if let Some(name) = value["$ref"].as_str() {
            assert!(description.pointer(&name[1..]).is_some(), "{name}");
        }
        open.extend(value.as_object().into_iter().flat_map(|fields| fields.values()));
        open.extend(value.as_array().into_iter().flatten());
    }
}
