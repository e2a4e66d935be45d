//! Tests which clients the server answers, and what pages may do.

use super::client::{Answer, ask, exchange, request};
use super::{Serving, question, shared};
use std::io::Write;

const PATH: &str = "/v1/models";

#[test]
fn extended_a_key_is_required() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"\n second key \n").unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let serving = Serving::start(&["--api-key", "first", "--api-key-file", &path]);
    let get = |path: &str, headers: &[(&str, &str)]| ask(&serving.address, "GET", path, headers, b"");
    for path in [PATH, "/slots", "/metrics", "/props", "/v1/messages", "/nothing"] {
        let answer = get(path, &[]);
        let kind = answer.json()["error"]["type"].clone();
        assert_eq!((answer.status, kind), (401, "authentication_error".into()), "{path}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{path}");
    }
    assert_eq!(get("/v1/messages", &[]).json()["type"], "error", "in Anthropic's form");
    assert_eq!((get("/health", &[]).status, get("/", &[]).status), (200, 200));
    for header in [("authorization", "Bearer first"), ("x-api-key", "second key")] {
        assert_eq!(get(PATH, &[header]).status, 200, "{header:?}");
    }
    for header in [("authorization", "Bearer second"), ("x-api-key", ""), ("authorization", "first")] {
        assert_eq!(get(PATH, &[header]).status, 401, "{header:?}");
    }
    let both = [("authorization", "Bearer of another service"), ("x-api-key", "first")];
    assert_eq!(get(PATH, &both).status, 200);
}

/// An empty key is a mistake, and every character of a key counts.
#[test]
fn extended_a_key_is_the_given_text() {
    for (key, variable) in [(Some(""), None), (Some(" "), None), (None, Some(""))] {
        let mut command = Serving::command(&key.map_or(vec![], |key| vec!["--api-key", key]));
        if let Some(variable) = variable {
            command.env("WGLM_API_KEY", variable);
        }
        let ended = command.stderr(std::process::Stdio::piped()).output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success() && told.contains("the key is empty"), "{key:?} {variable:?}: {told}");
    }
    let serving = Serving::start(&["--api-key", "a,9f3c"]);
    let get = |key| ask(&serving.address, "GET", PATH, &[("x-api-key", key)], b"").status;
    assert_eq!((get("a"), get("9f3c"), get("a,9f3c")), (401, 401, 200));
}

/// A client that sends a long prompt gets the reason of the refusal instead of a reset connection.
#[test]
fn extended_refused_clients_get_the_reason() {
    let serving = Serving::start(&["--api-key", "first"]);
    let body = vec![b' '; 900_000];
    for _ in 0..8 {
        let wrong = ask(&serving.address, "POST", "/v1/chat/completions", &[("x-api-key", "wrong")], &body);
        let unknown = ask(&serving.address, "POST", "/v1/nothing", &[("x-api-key", "first")], &body);
        let method = ask(&serving.address, "PUT", "/v1/messages", &[("x-api-key", "first")], &body);
        assert_eq!((wrong.status, unknown.status, method.status), (401, 404, 405));
    }
}

#[test]
fn extended_pages_of_other_origins_are_refused_unless_allowed() {
    let serving = shared();
    let origin = ("origin", "https://chat.example");
    let get = |serving: &Serving, origin| ask(&serving.address, "GET", PATH, &[origin], b"");
    let refused = get(&serving, origin);
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (403, None));
    let own = format!("http://{}", serving.address);
    assert_eq!(get(&serving, ("origin", &own)).status, 200);
    let serving = Serving::start(&["--cors", "https://chat.example"]);
    let allowed = get(&serving, origin);
    assert_eq!((allowed.status, allowed.header("access-control-allow-origin")), (200, Some("https://chat.example")));
    let asked = [origin, ("access-control-request-headers", "x-api-key"), ("access-control-request-method", "POST")];
    let preflight = ask(&serving.address, "OPTIONS", "/v1/chat/completions", &asked, b"");
    assert_eq!((preflight.status, preflight.header("access-control-allow-headers")), (204, Some("x-api-key")));
    assert!(preflight.header("access-control-allow-methods").unwrap().contains("DELETE"));
    assert_eq!(get(&serving, ("origin", "https://other.example")).status, 403);
}

#[test]
fn extended_unknown_host_names_are_refused() {
    let serving = shared();
    let get = |host: &str| ask(&serving.address, "GET", PATH, &[("host", host)], b"").status;
    assert_eq!((get("localhost:1"), get("rebound.example"), get("127.0.0.1.example:80")), (200, 403, 403));
    // The address at which the server listens decides, and not its name.
    let named = Serving::start(&["--host", "LOCALHOST"]);
    let get = |serving: &Serving, host: &str| ask(&serving.address, "GET", PATH, &[("host", host)], b"").status;
    assert_eq!((get(&named, "localhost"), get(&named, "rebound.example")), (200, 403));
    let open = Serving::start(&["--host", "0.0.0.0"]);
    assert_eq!((get(&open, "owl.example"), get(&open, "rebound.example")), (200, 200));
    let allowing = Serving::start(&["--host", "0.0.0.0", "--allow-host", "owl.example"]);
    let told = ["owl.example", "192.0.2.1:80", "rebound.example"].map(|host| get(&allowing, host));
    assert_eq!(told, [200, 200, 403]);
}

#[test]
fn unknown_paths_and_methods_are_reported() {
    let serving = shared();
    let (unknown, wrong) = (serving.get("/v1/nothing"), serving.get("/v1/chat/completions"));
    assert_eq!((unknown.status, unknown.json()["error"]["type"].as_str()), (404, Some("not_found_error")));
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("POST")));
    assert_eq!(wrong.json()["error"]["message"], "method not allowed: use POST");
}

/// Several requests over one connection.
#[test]
fn extended_a_connection_serves_several_requests() {
    let serving = shared();
    let body = question().to_string();
    let keep = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace("connection: close\r\n", "");
    let first = keep(request(&serving.address, "POST", "/v1/chat/completions", &[], body.as_bytes()));
    let last = request(&serving.address, "GET", "/health", &[], b"");
    let answers = exchange(&serving.address, &[first.as_bytes(), &last].concat());
    let second = answers.windows(9).rposition(|window| window == b"HTTP/1.1 ").unwrap();
    let statuses = [&answers[..], &answers[second..]].map(|bytes| Answer::read(bytes).unwrap().status);
    assert!(statuses == [200, 200] && second > 0, "{statuses:?}");
}
