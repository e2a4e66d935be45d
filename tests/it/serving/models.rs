//! Tests models that requests name, besides the one that the server was started with.

use super::alive::wait_in;
use super::{ANSWER, QUESTION, Serving, wait_for};
use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;

/// Two models on this machine, by the names that `wglm models` lists, and a file that is none.
const FIRST: &str = "publisher/first-GGUF:Q4_0";
const SECOND: &str = "publisher/second-GGUF:F16";
const BROKEN: &str = "publisher/broken-GGUF:Q8_0";

/// The name of the demonstration model, which the server is started with.
const OWN: &str = "fable-10m";

/// A home folder with the models.
fn home() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let f16 = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fable/fable-10m-f16.gguf");
    let place = |name: &str, bytes: &[u8]| {
        let folder = home.path().join(format!(".lmstudio/models/publisher/{name}-GGUF"));
        std::fs::create_dir_all(&folder).unwrap();
        let label =
            [FIRST, SECOND, BROKEN].iter().find_map(|whole| whole.strip_prefix(&format!("publisher/{name}-GGUF:")));
        std::fs::write(folder.join(format!("{name}-{}.gguf", label.unwrap())), bytes).unwrap();
    };
    place("first", wglm::DEMO_MODEL);
    place("second", &std::fs::read(f16).unwrap());
    place("broken", b"<html></html>");
    home
}

fn start(home: &TempDir, args: &[&str]) -> Serving {
    let path = home.path().to_str().unwrap();
    let hub = home.path().join("hub");
    let folders = [("HOME", path), ("USERPROFILE", path), ("HF_HUB_CACHE", hub.to_str().unwrap())];
    Serving::start_with(args, &folders)
}

/// What a model answers to the question whose answer is known, and which model says so.
fn asked(serving: &Serving, model: &str) -> (String, String) {
    let body = json!({"model": model, "temperature": 0, "messages": [{"role": "user", "content": QUESTION}]});
    let answer = serving.post("/v1/chat/completions", &body);
    assert_eq!(answer.status, 200, "{model}: {}", answer.text());
    let json = answer.json();
    let text = json["choices"][0]["message"]["content"].as_str().unwrap().trim().to_owned();
    (json["model"].as_str().unwrap().to_owned(), text)
}

fn names(list: &Value, field: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|model| model[field].as_str().unwrap().to_owned()).collect()
}

/// The models that are loaded.
fn loaded(serving: &Serving) -> Vec<String> {
    names(&serving.get("/api/ps").json()["models"], "name")
}

#[test]
fn a_model_that_a_request_names_is_loaded() {
    let home = home();
    let serving = start(&home, &[]);
    assert_eq!(names(&serving.get("/v1/models").json()["data"], "id"), [OWN, FIRST, SECOND]);
    assert_eq!(names(&serving.get("/api/tags").json()["models"], "name"), [OWN, FIRST, SECOND]);
    assert_eq!(loaded(&serving), [OWN], "listing loads nothing");
    let shown = serving.post("/api/show", &json!({"model": SECOND})).json();
    assert_eq!((&shown["details"]["quantization_level"], loaded(&serving).len()), (&json!("F16"), 1));

    assert_eq!(asked(&serving, SECOND), (SECOND.to_owned(), ANSWER.to_owned()));
    assert_eq!(asked(&serving, &FIRST.to_lowercase()).0, FIRST, "upper and lower case are the same");
    assert_eq!(loaded(&serving), [OWN, SECOND, FIRST]);
    for name in ["gpt-4o", OWN, ""] {
        assert_eq!(asked(&serving, name).0, OWN, "{name:?}");
    }
    let one = serving.get(&format!("/v1/models/{SECOND}")).json();
    assert_eq!(
        (&one["id"], &one["meta"]["n_vocab"]),
        (&SECOND.into(), &serving.get("/v1/models").json()["data"][0]["meta"]["n_vocab"])
    );
    let broken = serving.post("/v1/completions", &json!({"model": BROKEN, "prompt": "a"}));
    assert_eq!((broken.status, &broken.json()["error"]["param"]), (400, &json!("model")), "{}", broken.text());
    let message = broken.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains(BROKEN) && !message.contains("lmstudio"), "{message}");
}

#[test]
fn extended_there_are_at_most_so_many_models() {
    let home = home();
    let two = start(&home, &["--models-max", "2"]);
    for name in [FIRST, SECOND, FIRST] {
        assert_eq!(asked(&two, name).0, name);
        assert_eq!(loaded(&two), [OWN, name], "the other one is unloaded");
    }
    // A model that is in use is not unloaded.
    let mut body = two.endless();
    body["model"] = FIRST.into();
    let reply = wait_in(&two, "/v1/completions", &body, "\"text\"");
    assert_eq!(two.post("/v1/completions", &json!({"model": SECOND, "prompt": "a"})).status, 503);
    drop(reply);
    wait_for("the end of the reply", || {
        two.post("/v1/completions", &json!({"model": SECOND, "prompt": "a", "max_tokens": 1})).status == 200
    });
    assert_eq!(loaded(&two), [OWN, SECOND]);

    let one = start(&home, &["--models-max", "1"]);
    assert_eq!(asked(&one, FIRST).0, OWN);
    assert_eq!(names(&one.get("/v1/models").json()["data"], "id"), [OWN]);

    let alias = start(&home, &["--alias", FIRST]);
    assert_eq!((asked(&alias, FIRST).0, loaded(&alias)), (FIRST.to_owned(), vec![FIRST.to_owned()]));
}

#[test]
fn extended_a_model_is_unloaded_when_it_was_unused() {
    let home = home();
    let serving = start(&home, &["--keep-alive", "1000"]);
    let load = |name: &str, keep_alive: Value| {
        let body = json!({"model": name, "messages": [], "keep_alive": keep_alive, "stream": false});
        let answer = serving.post("/api/chat", &body);
        assert_eq!((answer.status, &answer.json()["model"]), (200, &name.into()), "{}", answer.text());
    };
    load(FIRST, json!("1h"));
    load(SECOND, json!(-1));
    assert_eq!(loaded(&serving), [OWN, FIRST, SECOND]);
    let until = serving.get("/api/ps").json()["models"][2]["expires_at"].as_str().unwrap().to_owned();
    assert!(until.starts_with("2999"), "{until}");
    load(FIRST, json!(0));
    wait_for("the end of the first", || loaded(&serving) == [OWN, SECOND]);
    load(OWN, json!("0s"));
    let wrong = serving.post("/api/chat", &json!({"model": SECOND, "messages": [], "keep_alive": "soon"}));
    assert_eq!((wrong.status, loaded(&serving)), (400, vec![OWN.to_owned(), SECOND.to_owned()]), "{}", wrong.text());
}
