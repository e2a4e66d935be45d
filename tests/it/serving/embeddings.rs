//! Tests embeddings in the forms of OpenAI's, Ollama's and llama.cpp's APIs.

use super::client::{Answer, ask};
use super::{Serving, figure_in, shared};
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;

const TEXTS: [&str; 3] = ["An owl sat on a branch.", "An owl sat in a tree.", "Seven plus five is twelve."];

/// How many texts a request has that takes long.
const MANY: usize = 2000;

fn vector(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect()
}

fn product(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

fn is_unit(vector: &[f32]) -> bool {
    (product(vector, vector) - 1.0).abs() < 1e-5
}

/// The bytes of a text in base64.
fn from_base64(text: &str) -> Vec<u8> {
    const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let sextets: Vec<usize> = text.trim_end_matches('=').chars().map(|letter| LETTERS.find(letter).unwrap()).collect();
    let bytes = sextets.chunks(4).flat_map(|four| {
        let bits = four.iter().fold(0, |bits, sextet| bits << 6 | sextet) << (6 * (4 - four.len()));
        [bits >> 16, bits >> 8, bits].map(|byte| byte as u8).into_iter().take(four.len() - 1)
    });
    bytes.collect()
}

/// The vectors of `/v1/embeddings`.
fn embedded(serving: &Serving, input: &Value) -> Vec<Vec<f32>> {
    let answer = serving.post("/v1/embeddings", &json!({"input": input})).json();
    answer["data"]
        .as_array()
        .unwrap_or_else(|| panic!("{answer}"))
        .iter()
        .map(|one| vector(&one["embedding"]))
        .collect()
}

#[test]
fn texts_and_tokens_get_vectors_of_length_one() {
    let serving = shared();
    let body = json!({"model": "any", "input": TEXTS, "user": "me", "top_a": 1});
    let answer = serving.post("/v1/embeddings", &body).json();
    assert_eq!((&answer["object"], answer["data"].as_array().map(Vec::len)), (&"list".into(), Some(3)), "{answer}");
    assert!(answer["model"].is_string() && answer["usage"]["prompt_tokens"].as_u64().unwrap() > 15, "{answer}");
    assert_eq!(answer["usage"]["prompt_tokens"], answer["usage"]["total_tokens"]);
    let warnings = answer["warnings"].as_array().unwrap();
    assert!(warnings[0].as_str().unwrap().contains("not an embedding model") && warnings.len() == 2, "{warnings:?}");
    assert_eq!(warnings[1], "top_a: not supported; ignored");
    let vectors: Vec<Vec<f32>> =
        answer["data"].as_array().unwrap().iter().map(|one| vector(&one["embedding"])).collect();
    for (index, (one, vector)) in answer["data"].as_array().unwrap().iter().zip(&vectors).enumerate() {
        assert_eq!((&one["object"], &one["index"]), (&"embedding".into(), &index.into()));
        assert!(is_unit(vector), "{index}");
    }
    assert!(product(&vectors[0], &vectors[1]) > product(&vectors[0], &vectors[2]), "texts about the same are nearer");
    let tokens = |text: &str| serving.post("/tokenize", &json!({"content": text, "parse_special": false})).json();
    let tokens = TEXTS.map(|text| tokens(text)["tokens"].clone());
    let same = |other: &[Vec<f32>], of: &[Vec<f32>]| other.iter().zip(of).all(|(a, b)| product(a, b) > 1.0 - 1e-5);
    assert_eq!(embedded(&serving, &TEXTS[0].into()), vectors[..1], "a text by itself");
    assert!(same(&embedded(&serving, &tokens[0]), &vectors[..1]), "its tokens");
    assert!(same(&embedded(&serving, &json!(tokens)), &vectors), "the tokens of all texts");
    let without = serving.post("/embeddings", &body).json();
    assert_eq!(without["data"], answer["data"]);
}

#[test]
fn base64_has_the_same_values() {
    let ask = |form: &str| {
        let body = json!({"input": TEXTS, "encoding_format": form});
        shared().post("/v1/embeddings", &body).json()["data"].as_array().unwrap().clone()
    };
    for (number, text) in ask("float").iter().zip(&ask("base64")) {
        let bytes = from_base64(text["embedding"].as_str().unwrap());
        let values: Vec<f32> = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        assert_eq!((values, &text["index"]), (vector(&number["embedding"]), &number["index"]));
    }
}

#[test]
fn wrong_requests_are_refused_by_field() {
    let serving = shared();
    let width = embedded(&serving, &"x".into())[0].len();
    for (body, field, words) in [
        (json!({}), "input", "there is no text"),
        (json!({"input": null}), "input", "there is no text"),
        (json!({"input": ""}), "input", "there is no text"),
        (json!({"input": []}), "input", "there is no text"),
        (json!({"input": ["a", ""]}), "input", "text 1: it is empty"),
        (json!({"input": [[1], []]}), "input", "text 1: it is empty"),
        (json!({"input": vec!["a"; 2049]}), "input", "2049 texts; at most 2048"),
        (json!({"input": ["a", "owl ".repeat(2000)]}), "input", "text 1: prompt is too long"),
        (json!({"input": [[1, 4_000_000]]}), "input", "text 0"),
        (json!({"input": "a", "dimensions": width + 1}), "dimensions", "leave it out"),
        (json!({"input": "a", "encoding_format": "int8"}), "encoding_format", "expected float or base64"),
        (json!({"input": "a", "grammar": "x"}), "grammar", "not supported"),
    ] {
        let answer = serving.post("/v1/embeddings", &body);
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, &error["param"]), (400, &field.into()), "{error}");
        assert_eq!(error["type"], "invalid_request_error");
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
    }
    let mixed = serving.post("/v1/embeddings", &json!({"input": ["a", 1]}));
    assert!(mixed.status == 400 && mixed.text().contains("a list of lists of token ids"), "{}", mixed.text());
    let long = serving.post("/v1/embeddings", &json!({"input": "owl ".repeat(2000)})).json();
    assert_eq!(long["error"]["code"], "context_length_exceeded");
    let same = serving.post("/v1/embeddings", &json!({"input": "x", "dimensions": width, "encoding_format": null}));
    assert_eq!(same.status, 200, "{}", same.text());
}

#[test]
fn ollamas_paths_have_its_forms() {
    let serving = shared();
    let wanted = embedded(&serving, &json!(TEXTS));
    let answer = serving.post("/api/embed", &json!({"model": "any", "input": TEXTS, "keep_alive": "5m"})).json();
    let vectors: Vec<Vec<f32>> = answer["embeddings"].as_array().unwrap().iter().map(vector).collect();
    assert_eq!(vectors, wanted);
    assert!(answer["total_duration"].as_u64().unwrap() > 0 && answer["load_duration"] == 0, "{answer}");
    assert!(answer["prompt_eval_count"].as_u64().unwrap() > 15 && answer["model"].is_string(), "{answer}");
    assert!(answer["warnings"][0].as_str().unwrap().contains("not an embedding model"), "{answer}");
    let one = serving.post("/api/embed", &json!({"input": TEXTS[0]})).json();
    assert_eq!(one["embeddings"].as_array().unwrap().len(), 1);
    let older = vector(&serving.post("/api/embeddings", &json!({"prompt": TEXTS[0]})).json()["embedding"]);
    let length = product(&older, &older).sqrt();
    assert!(!is_unit(&older) && product(&older, &wanted[0]) / length > 1.0 - 1e-5, "the mean as it is");
    for nothing in [json!({}), json!({"input": ""}), json!({"input": []})] {
        assert_eq!(serving.post("/api/embed", &nothing).json()["embeddings"], json!([]));
    }
    assert_eq!(serving.post("/api/embeddings", &json!({"prompt": ""})).json()["embedding"], json!([]));
    let long = json!({"input": ["owl ".repeat(2000)]});
    let cut = serving.post("/api/embed", &long).json();
    assert_eq!(cut["prompt_eval_count"], 1024, "{}", cut["warnings"]);
    assert!(cut["warnings"][1].as_str().unwrap().contains("cut to the context"), "{}", cut["warnings"]);
    let mut whole = long.clone();
    whole["truncate"] = false.into();
    let refused = serving.post("/api/embed", &whole);
    assert!(refused.status == 400 && refused.json()["error"].as_str().unwrap().contains("too long"));
}

#[test]
fn llama_cpps_path_has_its_form() {
    let serving = shared();
    let wanted = embedded(&serving, &json!(TEXTS));
    let answer = serving.post("/embedding", &json!({"content": TEXTS})).json();
    for (index, one) in answer.as_array().unwrap().iter().enumerate() {
        assert_eq!((&one["index"], vector(&one["embedding"][0])), (&index.into(), wanted[index].clone()));
    }
    let raw = serving.post("/embedding", &json!({"content": TEXTS[0], "embd_normalize": -1})).json();
    assert!(!is_unit(&vector(&raw[0]["embedding"][0])));
    let other = serving.post("/embedding", &json!({"input": TEXTS, "content": "x"})).json();
    assert_eq!(other, answer, "`input` comes before `content`");
    for wrong in [json!({"content": "a", "embd_normalize": 0}), json!({"content": ""}), json!({})] {
        assert_eq!(serving.post("/embedding", &wrong).status, 400, "{wrong}");
    }
}

/// Sends a request for [`MANY`] times this text, by a client with a key, which takes much longer than any other here.
fn begin_many(serving: &Serving, text: &str, key: &str) -> TcpStream {
    let body = json!({"input": vec![text; MANY]}).to_string();
    let head = format!("POST /v1/embeddings HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {key}\r\n", serving.address);
    let head = format!("{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    let mut stream = TcpStream::connect(&serving.address).unwrap();
    stream.write_all((head + &body).as_bytes()).unwrap();
    super::wait_for("the first text", || get(serving, "/slots", key).json()[0]["is_processing"] == true);
    stream
}

fn get(serving: &Serving, path: &str, key: &str) -> Answer {
    ask(&serving.address, "GET", path, &[("authorization", &format!("Bearer {key}"))], b"")
}

/// A figure of the server, for a client with a key.
fn figure(serving: &Serving, name: &str, key: &str) -> u64 {
    figure_in(&get(serving, "/metrics", key).text(), name)
}

/// Embeds a text for a client with a key, and returns the number of its tokens.
fn embed(serving: &Serving, text: &str, key: &str) -> u64 {
    let key = format!("Bearer {key}");
    let headers = [("content-type", "application/json"), ("authorization", key.as_str())];
    let body = json!({"input": text}).to_string();
    let answer = ask(&serving.address, "POST", "/v1/embeddings", &headers, body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["usage"]["prompt_tokens"].as_u64().unwrap()
}

/// A client that disconnects stops its texts, and what they took is free for others.
#[test]
fn extended_a_disconnected_client_stops_its_texts() {
    let serving = Serving::start(&["-np", "1"]);
    let stream = begin_many(&serving, &"An owl sat on a branch. ".repeat(30), "none");
    drop(stream);
    super::wait_for("its end", || serving.figure("clients_gone_total") == 1 && serving.figure("replies") == 0);
    super::wait_for("an idle slot", || serving.get("/slots").json()[0]["is_processing"] == false);
    super::wait_for("its memory", || serving.figure("memory_free_bytes") == serving.figure("memory_bytes"));
    let before = serving.figure("prompt_tokens_total");
    let tokens = embed(&serving, "x", "none");
    assert_eq!(serving.figure("prompt_tokens_total"), before + tokens, "only the last text was computed since");
}

/// The texts of a request come one after another, so another client's text gets its turn between them.
#[test]
fn extended_other_requests_get_their_turn_between_texts() {
    let serving = Serving::start(&["-np", "1", "--api-key", "first", "--api-key", "second"]);
    let text = "An owl sat on a branch. ".repeat(20);
    let tokens = embed(&serving, &text, "first");
    let before = figure(&serving, "prompt_tokens_total", "first");
    let stream = begin_many(&serving, &text, "first");
    let other = embed(&serving, "The fox ran.", "second");
    let computed = figure(&serving, "prompt_tokens_total", "first") - before;
    assert!(computed >= other && computed < MANY as u64 * tokens, "{computed} of {MANY} times {tokens} tokens");
    drop(stream);
    super::wait_for("the end of the others", || figure(&serving, "replies", "first") == 0);
}
