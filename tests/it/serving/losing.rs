//! Tests servers whose GPU is lost: requests are refused while the model is loaded again, and then answered.

use super::client::Answer;
use super::{ANSWER, Serving, question, wait_for};
use serde_json::json;

/// The text of a complete reply.
fn answer(told: &Answer) -> String {
    told.json()["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
}

/// Another conversation, and the answer of an undisturbed server.
const OTHER: (&str, &str) = ("What is the opposite of dark?", "The opposite of dark is light.");

#[test]
fn conversations_continue_after_a_loss() {
    let serving = Serving::start_with(&["-np", "2"], &[("WGLM_DROP_WORK", "6")]);
    let other = json!({"messages": [{"role": "user", "content": OTHER.0}], "temperature": 0,
        "chat_template_kwargs": {"enable_thinking": false}});
    let ask = |body: &serde_json::Value| serving.post("/v1/chat/completions", body);
    let both = || {
        std::thread::scope(|scope| {
            let first = scope.spawn(|| ask(&question()));
            [ask(&other), first.join().unwrap()]
        })
    };
    for told in both() {
        assert_eq!(told.status, 503, "{}", told.text());
        assert!(told.header("retry-after").is_some(), "{}", told.text());
    }
    assert_eq!(serving.figure("model_reloads_total"), 1);
    wait_for("the model", || match serving.get("/health").status {
        503 => false,
        status => status == 200,
    });
    let [second, first] = both();
    assert_eq!((answer(&first).as_str(), answer(&second).as_str()), (ANSWER, OTHER.1));
    assert_eq!(serving.figure("model_reloads_total"), 1, "once");
}

/// A stream ends with the error if it has begun, and the request can be repeated.
#[test]
fn extended_a_stream_reports_a_loss() {
    let serving = Serving::start_with(&[], &[("WGLM_DROP_WORK", "8")]);
    let mut body = question();
    body["stream"] = true.into();
    let told = serving.post("/v1/chat/completions", &body).text();
    assert!(told.contains("the GPU was lost"), "{told}");
    wait_for("the model", || serving.get("/health").status == 200);
    assert_eq!(answer(&serving.post("/v1/chat/completions", &question())), ANSWER);
}
