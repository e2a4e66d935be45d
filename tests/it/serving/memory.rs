//! Tests memory and threads: with any mix of requests the process needs at most `--max-memory` more than at rest, and
//! no kind of work takes the threads of another.

// Some tests are only for Linux, where /proc has the figures.
#![cfg_attr(not(target_os = "linux"), allow(dead_code, unused_imports))]

use super::client::{Answer, exchange, request};
use super::{ANSWER, Serving, question, wait_for};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The memory in MiB that the server may take in addition to its size at rest.
const BOUND: usize = 128;

/// How much more the server may take after the attack than before, in KiB: for allocations at first use, and for memory
/// that is not worth returning.
const LEFT: u64 = 32 << 10;

/// Figures of a process in KiB.
#[cfg(target_os = "linux")]
fn figure(process: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A request that takes much memory for its size: a path, a body with `@` as a placeholder, and its long replacement.
struct Attack {
    path: &'static str,
    body: String,
    long: Long,
}

/// The long part of a request.
#[derive(Clone, Copy)]
enum Long {
    /// A list of copies.
    List(&'static str),
    /// A string of copies.
    Text(&'static str),
    /// The copies themselves.
    Bare(&'static str),
}

impl Attack {
    /// The body with a long part of this many bytes.
    fn of_size(&self, bytes: usize) -> String {
        let long = match self.long {
            Long::List(what) => format!("[{}{what}]", format!("{what},").repeat(bytes / (what.len() + 1))),
            Long::Text(text) => format!("\"{}\"", text.repeat(bytes / text.len())),
            Long::Bare(text) => text.repeat(bytes / text.len()),
        };
        self.body.replace('@', &long)
    }
}

fn said(content: &str) -> String {
    format!(r#""messages":[{{"role":"user","content":{content}}}]"#)
}

fn attacks() -> Vec<Attack> {
    let mut attacks = Vec::new();
    let mut ask = |path, body: String, long| attacks.push(Attack { path, body: format!("{{{body}}}"), long });
    let (chat, hi) = ("/v1/chat/completions", said("\"Hi\""));
    let hi = format!(r#"{hi},"max_tokens":2"#);
    for list in ["[]", "[0]", r#"{"":0}"#, "\"x\""].map(Long::List) {
        ask(chat, format!(r#"{hi},"n":4,"chat_template_kwargs":{{"a":@}}"#), list);
        ask(chat, format!(r#"{hi},"tools":@"#), list);
        ask(chat, r#""messages":@"#.into(), list);
        ask(chat, said("@"), list);
        ask(chat, r#""max_tokens":2,"messages":[{"role":"user","content":"Hi","more":@}]"#.into(), list);
        ask(chat, format!(r#"{hi},"logit_bias":@"#), list);
        ask(chat, format!(r#"{hi},"stop":@"#), list);
        ask(chat, format!(r#"{hi},"response_format":{{"json_schema":{{"schema":{{"x":@}}}}}}"#), list);
        let called = r#"{"function":{"name":"f","arguments":{"a":@}}}"#;
        ask(chat, format!(r#""max_tokens":2,"messages":[{{"role":"assistant","tool_calls":[{called}]}}]"#), list);
    }
    for text in ["x", "<", "owl ", "\u{fdd0}", "\\u003c"].map(Long::Text) {
        ask(chat, format!(r#"{},"n":4"#, said("@")), text);
        ask(chat, format!(r#"{},"overflow":"drop_oldest""#, said("@")), text);
        ask(chat, format!(r#"{hi},"stop":[@],"tool_choice":@"#), text);
        ask(chat, format!(r#"{hi},"tools":[{{"type":"function","function":{{"name":"f","description":@}}}}]"#), text);
        ask("/tokenize", r#""content":@,"with_pieces":true"#.into(), text);
        ask("/tokenize", r#""content":@"#.into(), text);
        ask("/apply-template", said("@"), text);
        ask("/v1/messages/count_tokens", said("@"), text);
        ask("/v1/completions", r#""prompt":@,"echo":true,"n":4"#.into(), text);
        ask("/v1/embeddings", r#""input":@"#.into(), text);
        ask("/api/embed", r#""input":[@,@]"#.into(), text);
        ask("/v1/messages", format!(r#"{hi},"system":@"#), text);
        ask("/v1/responses", r#""input":"Hi","max_output_tokens":2,"instructions":@"#.into(), text);
    }
    for list in ["[]", "[1]", "1"].map(Long::List) {
        ask("/v1/completions", r#""prompt":@"#.into(), list);
        ask("/detokenize", r#""tokens":@"#.into(), list);
        ask("/v1/embeddings", r#""input":@"#.into(), list);
        ask("/v1/embeddings", r#""input":"x","more":@"#.into(), list);
        ask("/embedding", r#""content":"x","more":@"#.into(), list);
        ask("/api/embed", r#""input":"x","more":@,"options":{"a":@}"#.into(), list);
        ask("/api/embeddings", r#""prompt":"x","options":@"#.into(), list);
        ask("/api/embed", r#""input":@"#.into(), list);
        ask("/api/embed", r#""input":[@,@]"#.into(), list);
        ask("/v1/responses", r#""input":@,"metadata":{"a":@}"#.into(), list);
        ask("/v1/messages", format!(r#"{},"max_tokens":2,"system":@"#, said("@")), list);
    }
    ask(chat, r#""messages":@,"overflow":"drop_oldest""#.into(), Long::List(r#"{"role":"user","content":"x"}"#));
    ask(chat, r#""messages":@"#.into(), Long::Bare("["));
    ask(chat, format!(r#"{hi},"metadata":@"#), Long::Bare(r#"{"a":"#));
    attacks
}

/// Sends a body, and returns the status and the value of `Retry-After`.
fn send(serving: &Serving, path: &str, body: &[u8]) -> (Option<u16>, bool) {
    let answer = Answer::read(&exchange(&serving.address, &request(&serving.address, "POST", path, &[], body)));
    let again = answer.as_ref().is_some_and(|answer| answer.header("retry-after").is_some());
    (answer.map(|answer| answer.status), again)
}

/// Triggers all allocations at first use.
fn warm_up(serving: &Serving) {
    let with = |field: &str, value: Value| {
        let mut body = question();
        body[field] = value;
        body
    };
    let long = json!([{"role": "user", "content": "The owl sat on a tree. ".repeat(100)}]);
    std::thread::scope(|scope| {
        for body in [
            with("n", json!(4)),
            with("messages", long),
            with("top_logprobs", json!(3)),
            with("response_format", json!({"type": "json_object"})),
            with("temperature", json!(0.8)),
            with("presence_penalty", json!(0.5)),
        ] {
            scope.spawn(move || {
                let mut body = body;
                body["max_tokens"] = 20.into();
                body["logprobs"] = body.get("top_logprobs").is_some().into();
                let answer = serving.post("/v1/chat/completions", &body);
                assert_eq!(answer.status, 200, "{}", answer.text());
            });
        }
    });
    serving.post("/tokenize", &json!({"content": "owl ".repeat(50_000), "with_pieces": true}));
}

#[cfg(target_os = "linux")]
#[test]
fn long_no_mix_of_requests_takes_more_than_the_bound() {
    let (bound, sizes) = (BOUND.to_string(), [4_000_000, 250_000]);
    let serving = Serving::start(&["--max-memory", &bound, "--max-connections", "64", "--kv-tokens", "4096"]);
    let process = serving.process.id();
    warm_up(&serving);
    std::fs::write(format!("/proc/{process}/clear_refs"), "5").unwrap();
    let resting = figure(process, "VmRSS:");
    let next = AtomicUsize::new(0);
    let done = AtomicBool::new(false);
    let statuses = std::sync::Mutex::new(std::collections::BTreeMap::<u16, usize>::new());
    let attacks = attacks();
    std::thread::scope(|scope| {
        let good = scope.spawn(|| {
            let mut answered = 0;
            while !done.load(Ordering::SeqCst) {
                let answer = serving.post("/v1/chat/completions", &question());
                match answer.status {
                    200 => {
                        let json = answer.json();
                        assert_eq!(json["choices"][0]["message"]["content"].as_str().unwrap().trim(), ANSWER);
                        answered += 1;
                    }
                    503 => assert!(answer.header("retry-after").is_some()),
                    other => panic!("{other}: {}", answer.text()),
                }
                assert_eq!(serving.get("/health").status, 200);
            }
            answered
        });
        let attackers: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::SeqCst);
                        let Some(size) = sizes.get(number / attacks.len()) else { return };
                        let attack = &attacks[number % attacks.len()];
                        let (path, body) = (attack.path, attack.of_size(*size));
                        let (status, again) = send(&serving, path, body.as_bytes());
                        let status = status.unwrap_or_else(|| panic!("{path}: no answer"));
                        let known = matches!(status, 200 | 400 | 413) || matches!(status, 429 | 503) && again;
                        assert!(known, "{path}: {status} for {} bytes of {}", body.len(), attack.body);
                        *statuses.lock().unwrap().entry(status).or_default() += 1;
                    }
                })
            })
            .collect();
        let attacked: Vec<_> = attackers.into_iter().map(|attacker| attacker.join()).collect();
        done.store(true, Ordering::SeqCst);
        assert!(attacked.iter().all(Result::is_ok), "an answer was not what it should be");
        assert!(good.join().unwrap() > 0, "nobody was answered");
    });
    wait_for("the end of all", || serving.figure("replies") == 0 && serving.figure("tools_processing") == 0);
    let (peak, after) = (figure(process, "VmHWM:"), figure(process, "VmRSS:"));
    let statuses = statuses.into_inner().unwrap();
    println!("{resting} KiB at rest, {peak} at most, {after} afterwards; {statuses:?}");
    assert!(peak < resting + (BOUND << 10) as u64, "{resting} KiB became {peak}");
    assert!(after < resting + LEFT, "{resting} KiB became {after}");
    assert_eq!(serving.figure("memory_free_bytes"), serving.figure("memory_bytes"), "all of it was given back");
    assert_eq!(serving.figure("body_memory_free_bytes"), serving.figure("body_memory_bytes"));
}

#[test]
fn requests_beyond_the_memory_are_refused_with_the_reason() {
    let serving = Serving::start(&["--max-memory", "128", "--max-connections", "64"]);
    let long = json!({"messages": [{"role": "user", "content": "x".repeat(8_000_000)}]});
    let answer = serving.post("/v1/chat/completions", &long);
    assert_eq!(answer.status, 413);
    assert!(answer.text().contains("--max-memory"), "{}", answer.text());
    for (fields, reason) in [
        (json!({"chat_template_kwargs": {"a": vec![0; 5000]}}), "chat_template_kwargs"),
        (json!({"chat_template_kwargs": {"a": "x".repeat(1 << 17)}}), "chat_template_kwargs"),
        (json!({"tools": vec![json!({}); 1025]}), "at most 1024"),
        (json!({"stop": ["x".repeat(20_000)]}), "stop: 20000 bytes"),
        (json!({"messages": [{"role": "user", "content": vec!["x"; 1025]}]}), "1025 parts"),
        (json!({"temperature": "x".repeat(100_000)}), "temperature: expected a number"),
    ] {
        let mut body = question();
        body.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap());
        let answer = serving.post("/v1/chat/completions", &body);
        let text = answer.text();
        assert!(answer.status == 400 && text.contains(reason) && text.len() < 2000, "{}: {text}", answer.status);
    }
    let text = json!({"content": "x".repeat(5 << 20)});
    let answer = serving.post("/tokenize", &text);
    assert!(answer.status == 400 && answer.text().contains("4194304"), "{}", answer.text());
    for args in [["--max-memory", "40"], ["--max-body", "66000"]] {
        let output = Serving::command(&args).stderr(std::process::Stdio::piped()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains("--max-memory"), "{told}");
    }
}

/// Each of several replies has its own seed, and equals the reply to a request with that seed.
#[test]
fn extended_several_replies_share_a_prompt_and_have_their_own_seeds() {
    let serving = super::shared();
    let mut body = json!({"messages": [{"role": "user", "content": "Tell me a story about an owl."}]});
    (body["temperature"], body["max_tokens"], body["n"]) = (json!(2), json!(12), json!(4));
    (body["top_k"], body["top_p"], body["min_p"]) = (json!(0), json!(1), json!(0));
    let text = |choice: &Value| choice["message"].to_string();
    body["seed"] = 7.into();
    let together = serving.post("/v1/chat/completions", &body).json();
    let together: Vec<String> = together["choices"].as_array().unwrap().iter().map(text).collect();
    body["n"] = 1.into();
    for (index, reply) in together.iter().enumerate() {
        body["seed"] = (7 + index).into();
        let alone = serving.post("/v1/chat/completions", &body).json();
        assert_eq!(text(&alone["choices"][0]), *reply, "reply {index}");
    }
    assert!(together.iter().any(|reply| *reply != together[0]), "{together:?}");
}

#[test]
fn extended_one_kind_of_work_leaves_threads_to_others() {
    let serving = Serving::start(&[]);
    assert_eq!(serving.get("/ready").json(), json!({"ready": true, "obstacles": []}));
    let body = json!({"content": "What an owl saw. ".repeat(25_000)}).to_string();
    let (done, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..48 {
            scope.spawn(|| {
                match send(&serving, "/tokenize", body.as_bytes()) {
                    (Some(200), _) => {}
                    // A client has half of the places, and this one is the only one.
                    (Some(429), true) => drop(refused.fetch_add(1, Ordering::SeqCst)),
                    (Some(503), true) => {}
                    other => panic!("{other:?}"),
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        wait_for("a full share", || refused.load(Ordering::SeqCst) > 0);
        let ready = serving.get("/ready");
        let chat = serving.post("/v1/chat/completions", &question());
        let busy = serving.figure("tools_processing");
        assert_eq!(serving.get("/health").status, 200);
        assert_eq!(chat.status, 200, "{}", chat.text());
        assert!(busy > 0 && done.load(Ordering::SeqCst) < 48, "the others were done before");
        assert_eq!(ready.status, 200, "replies do not need those threads: {}", ready.text());
    });
    wait_for("the end of what waited", || serving.figure("tools_processing") == 0);
    assert_eq!(serving.figure("tools_deferred"), 0);
}
