//! Tests that a stream is never silent: clients get signs of life in the form that each interface counts, and the
//! progress of prompts if they ask for it. The servers of these tests allow a silence of a millisecond, so that
//! everything takes longer than that.

use super::Serving;
use super::client::Answer;
use serde_json::{Value, json};

/// A server that streams a sign of life after a millisecond.
fn impatient() -> Serving {
    Serving::start(&["--silence", "1"])
}

/// A text of several hundred tokens, so that it is computed in several steps.
fn long() -> String {
    (0..50).map(|number| format!("The fox has {number} hens and a red boat. ")).collect()
}

/// The lines of a stream before the first one that has any of these texts.
fn before<'a>(answer: &'a Answer, texts: &[&str]) -> Vec<&'a str> {
    let text = std::str::from_utf8(&answer.body).unwrap();
    let is_other = |line: &&str| !texts.iter().any(|text| line.contains(text));
    let lines: Vec<&str> = text.lines().take_while(is_other).collect();
    assert!(lines.len() < text.lines().count(), "nothing of {texts:?} in {text}");
    lines
}

fn count(lines: &[&str], of: &str) -> usize {
    lines.iter().filter(|line| line.contains(of)).count()
}

#[test]
fn a_long_prompt_is_not_silent() {
    let serving = impatient();
    let messages = json!([{"role": "user", "content": long()}]);
    let body = |more: Value| {
        let mut body = json!({"messages": messages, "input": messages, "prompt": long(), "stream": true, "max_tokens": 8,
                              "temperature": 0});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let chat = serving.post("/v1/chat/completions", &body(json!({})));
    let waited = before(&chat, &["\"content\":\"T", "\"reasoning_content\""]);
    assert!(count(&waited, "\"delta\":{}") > 0, "{waited:?}");
    assert_eq!(count(&waited, "\"role\""), 1);

    let responses = serving.post("/v1/responses", &body(json!({"instructions": "Be brief."})));
    let waited = before(&responses, &["response.output_item.added"]);
    assert!(count(&waited, "event: response.in_progress") > 1, "{waited:?}");
    let numbers: Vec<u64> = responses.events().iter().filter_map(|event| event["sequence_number"].as_u64()).collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());

    let messages = serving.post("/v1/messages", &body(json!({"system": "Be kind."})));
    let waited = before(&messages, &["content_block_start"]);
    assert!(count(&waited, "event: ping") > 1, "{waited:?}");

    let completion = serving.post("/v1/completions", &body(json!({})));
    let waited = before(&completion, &["\"text\""]);
    assert!(count(&waited, ": waiting") > 0, "{waited:?}");
}

/// A request that waits for its turn gets signs as well.
#[test]
fn a_queue_is_not_silent() {
    let serving = Serving::start(&["--silence", "1", "--parallel", "1"]);
    let mut body = serving.endless();
    body["max_tokens"] = 60.into();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| serving.post("/v1/completions", &body));
        let second = scope.spawn(|| serving.post("/v1/completions", &body));
        let answers = [first.join().unwrap(), second.join().unwrap()];
        let waited = answers.map(|answer| count(&before(&answer, &["\"text\""]), ": waiting"));
        assert!(waited.iter().all(|signs| *signs > 0), "{waited:?}");
    });
}

#[test]
fn the_progress_of_a_prompt_is_reported_on_request() {
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
        assert!(number(last, "total") > 500 && number(last, "cache") < 100, "{path}: {last}");
        assert!(number(first, "time_ms") <= number(last, "time_ms"));
        // The second time the cache has it.
        let again = progress(path, body);
        assert!(number(&again[0], "cache") > 500, "{path}: {again:?}");
    }
    let silent =
        serving.post("/v1/chat/completions", &json!({"messages": messages("E"), "stream": true, "max_tokens": 1}));
    assert!(silent.status == 200 && !silent.text().contains("prompt_progress"));
}
