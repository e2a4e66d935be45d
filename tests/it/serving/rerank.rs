//! Tests `/v1/rerank`.

use super::shared;
use serde_json::{Value, json};

#[test]
fn extended_documents_are_ordered_by_their_scores() {
    let documents = json!(["An owl sat on a branch.", {"text": "Seven plus five is twelve."}, "The fox ran."]);
    let body = json!({"query": "What is seven plus five?", "documents": documents, "return_documents": true});
    let answer = shared().post("/v1/rerank", &body).json();
    let results = answer["results"].as_array().unwrap();
    let scores: Vec<f64> = results.iter().filter_map(|result| result["relevance_score"].as_f64()).collect();
    assert!(scores.len() == 3 && scores.is_sorted_by(|a, b| a >= b), "{answer}");
    assert!(scores.iter().all(|score| (0.0..=1.0).contains(score)) && scores[0] > scores[2], "{answer}");
    for result in results {
        let given = &documents[result["index"].as_u64().unwrap() as usize];
        assert_eq!(&result["document"]["text"], given.get("text").unwrap_or(given));
    }
    assert!(answer["warnings"][0].as_str().unwrap().contains("not a reranker"), "{answer}");
    let mut with_other = body.clone();
    with_other["top_a"] = 1.into();
    let warnings = shared().post("/v1/rerank", &with_other).json()["warnings"].clone();
    assert_eq!((warnings.as_array().unwrap().len(), &warnings[1]), (2, &json!("top_a: not supported; ignored")));
    assert!(answer["usage"]["prompt_tokens"].as_u64().unwrap() > 30, "{answer}");
    let tei = json!({"query": body["query"], "texts": ["An owl sat on a branch."], "return_text": true});
    let list = shared().post("/rerank", &tei).json();
    assert_eq!((list.as_array().unwrap().len(), &list[0]["index"], &list[0]["text"]), (1, &0.into(), &tei["texts"][0]));
    assert!(list[0]["score"].is_f64(), "{list}");
    let both = json!({"query": body["query"], "texts": ["a"], "documents": ["b"]});
    let refused = shared().post("/rerank", &both);
    assert!(refused.status == 400 && refused.text().contains("both"), "{}", refused.text());
    for path in ["/rerank", "/reranking", "/v1/reranking"] {
        let mut first = body.clone();
        (first["top_n"], first["return_documents"]) = (1.into(), Value::Null);
        let answer = shared().post(path, &first).json();
        let only = answer["results"].as_array().unwrap();
        assert_eq!((only.len(), &only[0]["index"], &only[0]["document"]), (1, &results[0]["index"], &Value::Null));
        assert!((only[0]["relevance_score"].as_f64().unwrap() - scores[0]).abs() < 1e-2, "{answer}");
    }
}

/// The score is the part of *yes* in the probabilities that the model gives to *yes* and *no* after the prompt.
#[test]
fn extended_a_score_is_the_probability_of_yes() {
    let serving = shared();
    let (query, document) = ("What is seven plus five?", "Seven plus five is twelve.");
    let task = "Judge whether the document answers the query. The answer can only be \"yes\" or \"no\".";
    let messages = json!([
        {"role": "system", "content": task},
        {"role": "user", "content": format!("Query: {query}\n\nDocument: {document}")},
    ]);
    let template = json!({"messages": messages, "chat_template_kwargs": {"enable_thinking": false}});
    let prompt = serving.post("/apply-template", &template).json()["prompt"].as_str().unwrap().to_owned();
    let encode = |text: &str| -> Vec<u64> {
        serde_json::from_value(serving.post("/tokenize", &json!({"content": text})).json()["tokens"].clone()).unwrap()
    };
    let tokens = encode(&prompt);
    let probability = |word: &str| {
        let with = [tokens.as_slice(), &encode(word)[..1]].concat();
        let body = json!({"prompt": with, "max_tokens": 0, "echo": true, "logprobs": 1});
        let logprobs = serving.post("/v1/completions", &body).json()["choices"][0]["logprobs"].clone();
        logprobs["token_logprobs"].as_array().unwrap().last().unwrap().as_f64().unwrap().exp()
    };
    let [yes, no] = [["yes", "Yes"], ["no", "No"]].map(|words| words.map(probability).iter().sum::<f64>());
    let body = json!({"query": query, "documents": [document]});
    let score = serving.post("/v1/rerank", &body).json()["results"][0]["relevance_score"].as_f64().unwrap();
    assert!((score - yes / (yes + no)).abs() < 0.02, "{score}, not {yes} / ({yes} + {no})");
}

#[test]
fn requests_without_a_query_or_documents_are_refused() {
    for (body, word) in [
        (json!({"documents": ["a"]}), "query"),
        (json!({"query": "a", "documents": []}), "documents"),
        (json!({"query": "a", "documents": vec!["b"; 65]}), "documents"),
        (json!({"query": "long ".repeat(200_000), "documents": vec!["b"; 64]}), "context"),
    ] {
        let answer = shared().post("/v1/rerank", &body);
        assert!(answer.status == 400 && answer.text().contains(word), "{}", answer.text());
    }
}
