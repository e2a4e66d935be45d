//! Tests the endpoints of llama.cpp's server.

use super::{QUESTION, Serving, shared, wait_for};
use serde_json::json;

#[test]
fn a_server_describes_itself() {
    let serving = shared();
    assert_eq!(serving.get("/health").json(), json!({"status": "ok"}));
    let props = serving.get("/props").json();
    assert_eq!((&props["default_generation_settings"]["n_ctx"], &props["total_slots"]), (&1024.into(), &4.into()));
    assert_eq!(
        (&props["chat_template_caps"]["supports_tools"], &props["model_path"]),
        (&true.into(), &"fable-10m-q4_0.gguf".into())
    );
    let slots = serving.get("/slots").json();
    assert_eq!((slots.as_array().unwrap().len(), &slots[0]["n_ctx"]), (4, &1024.into()));
}

#[test]
fn health_waits_for_the_model() {
    let serving = Serving::begin(&[]);
    let early = serving.get("/health");
    if early.status != 200 {
        assert_eq!((early.status, early.header("retry-after")), (503, Some("2")));
        assert_eq!(early.json()["error"]["message"], "Loading model");
    }
    wait_for("the model", || serving.get("/health").status == 200);
}

#[test]
fn text_becomes_tokens_and_tokens_text() {
    let serving = shared();
    for text in [QUESTION, "", "ä€😀 <|user|>"] {
        let tokens = serving.post("/tokenize", &json!({"content": text})).json()["tokens"].clone();
        assert_eq!(serving.post("/detokenize", &json!({"tokens": tokens})).json()["content"], text);
    }
    let one = |special: bool| {
        let body = json!({"content": "<|user|>", "parse_special": special});
        serving.post("/tokenize", &body).json()["tokens"].as_array().unwrap().len()
    };
    assert!(one(true) == 1 && one(false) > 1);
    let pieces = serving.post("/tokenize", &json!({"content": "owl", "with_pieces": true})).json()["tokens"].clone();
    assert!(pieces[0]["id"].is_number() && pieces[0]["piece"].is_string(), "{pieces}");
    assert_eq!(serving.post("/detokenize", &json!({"tokens": [4_000_000]})).status, 400);
}

#[test]
fn a_prompt_can_be_seen() {
    let body =
        json!({"messages": [{"role": "user", "content": "Hi."}], "chat_template_kwargs": {"enable_thinking": false}});
    let prompt = shared().post("/apply-template", &body).json()["prompt"].as_str().unwrap().to_owned();
    assert_eq!(prompt, "[gMASK]<sop><|user|>Hi.<|assistant|></think>");
}

#[test]
fn metrics_count_the_work() {
    let serving = Serving::start(&["-np", "2", "--alias", "owl"]);
    let body = json!({"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 5, "temperature": 0});
    let reply = serving.post("/v1/chat/completions", &body).json();
    assert_eq!(reply["model"], "owl");
    wait_for("the counts", || serving.figure("tokens_predicted_total") == 5);
    let prompt = reply["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(serving.figure("prompt_tokens_total") + serving.figure("cached_tokens_total"), prompt);
    assert_eq!((serving.figure("model_loaded"), serving.figure("requests_refused_total")), (1, 0));
    wait_for("an end", || serving.figure("replies") == 0);
    assert_eq!(serving.get("/props").json()["total_slots"], 2);
    let text = serving.get("/metrics").text();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    assert!(samples.clone().count() > 10 && !text.contains("seven"), "{text}");
    assert!(samples.map(|line| line.split(' ').nth(1)).all(|value| value.unwrap().parse::<u64>().is_ok()), "{text}");
}
