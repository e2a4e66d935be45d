//! Tests the endpoints of llama.cpp's server.

use super::{QUESTION, Serving, shared, wait_for};
use crate::hostile_models::small::Small;
use serde_json::{Value, json};

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
    assert!(props["default_generation_settings"]["params"]["seed"].is_u64(), "{props}");
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
    let prompt = |body: &Value| shared().post("/apply-template", body).json()["prompt"].as_str().unwrap().to_owned();
    let without = "[gMASK]<sop><|user|>Hi.<|assistant|></think>";
    assert_eq!(prompt(&body), without);
    for off in [json!({"enable_thinking": false}), json!({"reasoning_effort": "none"})] {
        let mut body = json!({"messages": body["messages"]});
        body.as_object_mut().unwrap().extend(off.as_object().unwrap().clone());
        assert_eq!(prompt(&body), without, "{off}");
    }
    let mut alone = body.clone();
    alone["add_generation_prompt"] = false.into();
    assert_eq!(prompt(&alone), "[gMASK]<sop><|user|>Hi.");
    let encoded = shared().post("/tokenize", &json!({"content": without})).json()["tokens"].clone();
    for path in ["/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"] {
        let counted = shared().post(path, &body).json();
        assert_eq!(counted, json!({"input_tokens": encoded.as_array().unwrap().len()}));
    }
}

#[test]
fn extended_metrics_count_the_work() {
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

fn completion(more: &Value) -> Value {
    let mut body = json!({"prompt": "Once upon a time", "n_predict": 6, "temperature": 0, "cache_prompt": true});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn a_completion_in_llama_cpps_form() {
    let serving = shared();
    let whole = serving.post("/completion", &completion(&json!({"id_slot": -1}))).json();
    assert_eq!(
        (&whole["stop"], &whole["stop_type"], &whole["truncated"]),
        (&true.into(), &"limit".into(), &false.into())
    );
    assert_eq!((&whole["tokens_predicted"], &whole["tokens"]), (&6.into(), &json!([])));
    assert!(whole["timings"]["predicted_per_second"].is_number() && whole["stopping_word"] == "", "{whole}");
    let text = whole["content"].as_str().unwrap();
    let events = serving.post("/completions", &completion(&json!({"stream": true}))).events();
    let (end, pieces) = events.split_last().unwrap();
    let streamed: String = pieces.iter().filter_map(|event| event["content"].as_str()).collect();
    assert!(streamed == text && pieces.iter().all(|event| event["stop"] == false), "{events:?}");
    assert_eq!((&end["stop"], &end["content"], &end["tokens_predicted"]), (&true.into(), &"".into(), &6.into()));
    let one = serving.post("/completion", &completion(&json!({"n_predict": 1}))).json()["timings"].clone();
    assert_eq!((&one["predicted_per_token_ms"], &one["predicted_per_second"]), (&json!(0.0), &json!(0.0)), "{one}");
    for answer in [&whole, end] {
        assert_eq!(answer["has_new_line"], text.contains('\n'), "{answer}");
    }
    let word = text.split_whitespace().nth(1).unwrap();
    let stopped = serving.post("/completion", &completion(&json!({"stop": ["never said", word]}))).json();
    assert_eq!((&stopped["stop_type"], &stopped["stopping_word"]), (&"word".into(), &word.into()));
    assert!(!stopped["content"].as_str().unwrap().contains(word));
}

#[test]
fn tokens_of_a_completion_have_their_ids_and_probabilities() {
    let serving = shared();
    let body = completion(&json!({"n_probs": 2}));
    let whole = serving.post("/completion", &body).json();
    let ids: Vec<u64> = serde_json::from_value(whole["tokens"].clone()).unwrap();
    let listed = whole["completion_probabilities"].as_array().unwrap();
    assert_eq!((ids.len(), listed.len()), (6, 6));
    for (token, id) in listed.iter().zip(&ids) {
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!((&token["id"], &top[0]["id"], top.len()), (&(*id).into(), &(*id).into(), 2));
        assert!(token["logprob"].as_f64().unwrap() <= 0.0 && token["bytes"].is_array(), "{token}");
    }
    assert_eq!(serving.post("/detokenize", &json!({"tokens": ids})).json()["content"], whole["content"]);
    let streamed = serving.post("/completion", &completion(&json!({"return_tokens": true, "stream": true}))).events();
    let all: Vec<u64> =
        streamed.iter().filter_map(|event| event["tokens"].as_array()).flatten().filter_map(Value::as_u64).collect();
    assert_eq!(all, ids);
    assert!(streamed.iter().all(|event| event["completion_probabilities"].is_null()));
}

#[test]
fn prompts_are_texts_tokens_and_both() {
    let serving = shared();
    let tokens = |text: &str| serving.post("/tokenize", &json!({"content": text})).json()["tokens"].clone();
    let want = serving.post("/completion", &completion(&json!({}))).json()["content"].clone();
    let mut mixed = tokens("Once upon").as_array().unwrap().clone();
    mixed.push(" a time".into());
    let object = json!({"prompt_string": "Once upon a time", "multimodal_data": []});
    for prompt in [tokens("Once upon a time"), mixed.into(), object.clone()] {
        assert_eq!(serving.post("/completion", &completion(&json!({"prompt": prompt}))).json()["content"], want);
    }
    let mut picture = object;
    picture["multimodal_data"] = json!(["iVBORw0K"]);
    let refused = serving.post("/completion", &completion(&json!({"prompt": picture})));
    assert!(refused.status == 400 && refused.text().contains("multimodal_data"), "{}", refused.text());
    for wrong in [json!(["a", null]), json!([["a", []]]), json!(["a", {}])] {
        assert_eq!(serving.post("/completion", &completion(&json!({"prompt": wrong}))).status, 400, "{wrong}");
    }
    let several = json!({"prompt": ["Once upon a time", tokens("One morning")]});
    let several = serving.post("/completion", &completion(&several)).json();
    assert_eq!(
        (several.as_array().unwrap().len(), &several[0]["content"], &several[1]["index"]),
        (2, &want, &1.into())
    );
}

#[test]
fn texts_with_a_bias_stand_for_their_tokens() {
    let serving = shared();
    let text = serving.post("/completion", &completion(&json!({}))).json()["content"].as_str().unwrap().to_owned();
    let is_end = |(_, letter): &(usize, char)| !letter.is_alphanumeric();
    let end = text.char_indices().skip(1).find(is_end).map_or(text.len(), |(at, _)| at);
    let word = &text[..end];
    for bias in [json!({word: -100}), json!([[word, false]])] {
        let other = serving.post("/completion", &completion(&json!({"logit_bias": bias}))).json();
        assert!(!other["content"].as_str().unwrap().starts_with(word), "{other}");
    }
    // Digits are the id of a token as a key, and a text in a pair.
    let tokens = serving.post("/completion", &completion(&json!({"return_tokens": true}))).json()["tokens"].clone();
    let id = tokens[0].to_string();
    let biased = |bias: Value| serving.post("/completion", &completion(&json!({"logit_bias": bias}))).json();
    assert_ne!(biased(json!({&id: -100}))["content"], text.as_str());
    assert_ne!(biased(json!([[tokens[0], -100]]))["content"], text.as_str());
    assert_eq!(biased(json!([[&id, -100]]))["content"], text.as_str());
}

#[test]
fn a_prompt_that_is_too_long_comes_with_its_length() {
    let error = shared().post("/completion", &completion(&json!({"prompt": vec![5; 2000]}))).json()["error"].clone();
    assert_eq!((&error["n_prompt_tokens"], &error["n_ctx"]), (&2000.into(), &1024.into()), "{error}");
    assert_eq!(error["code"], "context_length_exceeded");
}

#[test]
fn what_a_completion_does_not_have_is_refused_by_name() {
    for (field, value) in [
        ("mirostat", json!(2)),
        ("typical_p", json!(0.5)),
        ("xtc_probability", json!(0.1)),
        ("dry_multiplier", json!(0.8)),
        ("json_schema", json!({"type": "object"})),
        ("post_sampling_probs", json!(true)),
        ("lora", json!([{"id": 0, "scale": 1.0}])),
        ("n_probs", json!(21)),
        ("grammar", json!("root ::= \"a\"")),
    ] {
        let answer = shared().post("/completion", &completion(&json!({field: value})));
        assert!(answer.status == 400 && answer.text().contains(field), "{}", answer.text());
    }
    let off = json!({"mirostat": 0, "typical_p": 1.0, "xtc_probability": 0.0, "dry_multiplier": 0.0, "lora": [],
        "top_n_sigma": -1.0, "dynatemp_range": -1, "tfs_z": 2, "json_schema": null, "n_probs": 0});
    let answer = shared().post("/completion", &completion(&off));
    assert!(answer.status == 200 && answer.json()["warnings"].is_null(), "{}", answer.text());
    // What programs send with every request, while the samplers that it names are off.
    let order = json!({"samplers": ["top_k", "typ_p", "top_p"]});
    let json = shared().post("/completion", &completion(&order)).json();
    assert_eq!(json["warnings"], json!(["samplers: not supported; ignored"]));
}

#[test]
fn extended_a_completion_goes_on_past_its_end_if_asked() {
    let serving = shared();
    let end = serving.post("/tokenize", &json!({"content": "<|user|>"})).json()["tokens"][0].clone();
    let ends = completion(&json!({"logit_bias": [[end, 1000]]}));
    assert_eq!(serving.post("/completion", &ends).json()["stop_type"], "eos");
    let mut goes_on = completion(&json!({"ignore_eos": true, "n_predict": 60, "return_tokens": true}));
    goes_on["prompt"] =
        "[gMASK]<sop><|user|>What is seven plus five?<|assistant|></think>Seven plus five is twelve.".into();
    let answer = serving.post("/completion", &goes_on).json();
    assert_eq!((&answer["tokens_predicted"], &answer["stop_type"]), (&60.into(), &"limit".into()));
    assert_eq!(answer["truncated"], false);
    let small = Serving::start(&["-c", "64"]);
    (goes_on["n_predict"], goes_on["prompt"]) = (Value::Null, vec![5; 60].into());
    let answer = small.post("/completion", &goes_on).json();
    assert_eq!((&answer["truncated"], &answer["stop_type"]), (&true.into(), &"limit".into()), "{answer}");
}

#[test]
fn adapters_and_infills_are_refused() {
    let serving = shared();
    assert_eq!(serving.get("/lora-adapters").json(), json!([]));
    assert_eq!(serving.post("/lora-adapters", &json!([])).json(), json!({"success": true}));
    let some = serving.post("/lora-adapters", &json!([{"id": 0, "scale": 0.5}]));
    assert!(some.status == 400 && some.text().contains("LoRA adapters"), "{}", some.text());
    let long = serving.post("/lora-adapters", &json!([vec![[0]; 1_200_000]]));
    assert!(long.status == 400 && long.text().contains("bytes"), "{}", long.text());
    let gap = json!({"input_prefix": "a", "input_suffix": "b"});
    let infill = serving.post("/infill", &gap);
    assert!(infill.status == 400 && infill.text().contains("does not support fill-in-the-middle"), "{}", infill.text());
    let answer = serving.post("/completion", &completion(&gap)).json();
    let ignored = ["input_prefix", "input_suffix"].map(|name| format!("{name}: not supported; ignored"));
    assert_eq!(answer["warnings"], json!(ignored));
}

/// A model whose vocabulary has tokens for texts with a gap gets the text around it in their order.
#[test]
fn extended_a_gap_is_filled() {
    let tokens = |text: &str, parse_special: bool| {
        let body = json!({"content": text, "parse_special": parse_special});
        shared().post("/tokenize", &body).json()["tokens"].as_array().unwrap().clone()
    };
    let marks = tokens("<|system|><|user|><|observation|>", true);
    let mut small = Small::like_fable();
    for (name, id) in ["fim_pre", "fim_suf", "fim_mid"].iter().zip(&marks) {
        small.set(&format!("tokenizer.ggml.{name}_token_id"), id.as_u64().unwrap() as u32);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("small.gguf");
    std::fs::write(&file, small.file()).unwrap();
    let serving = Serving::start(&["-m", file.to_str().unwrap(), "-c", "96"]);
    let [prefix, suffix, middle] = [0, 1, 2].map(|mark| vec![marks[mark].clone()]);
    let (before, after) = (tokens("An owl", false), tokens(" a <|user|> hill.", false));
    assert!(after.len() > 5, "the name of a control token is text");
    // The next request finds all of its prompt in the cache, except the last token, which is always computed.
    let same = |gap: Value, prompt: &[&Vec<Value>]| {
        let filled = serving.post("/infill", &gap).json();
        let prompt = prompt.iter().copied().flatten().collect::<Vec<_>>();
        assert_eq!(filled["tokens_evaluated"], prompt.len(), "{filled}");
        let again = serving.post("/completion", &json!({"prompt": prompt, "n_predict": 1})).json();
        assert_eq!(again["timings"]["cache_n"], prompt.len() - 1, "{again}");
        filled
    };
    let plain = [&prefix, &before, &suffix, &after, &middle];
    let vim = json!({"input_prefix": "An", "prompt": " owl", "input_suffix": " a <|user|> hill.", "n_predict": 8,
        "input_extra": [], "n_indent": 4, "t_max_predict_ms": 250, "top_k": 40, "top_p": 0.9, "stream": false,
        "samplers": ["top_k", "top_p", "infill"], "cache_prompt": true, "response_fields": ["content"]});
    let filled = same(vim, &plain);
    assert!(filled["content"].is_string() && filled["warnings"].to_string().contains("t_max_predict_ms"), "{filled}");
    let more = json!({"input_prefix": "An owl", "input_suffix": " a <|user|> hill.", "n_predict": 8,
        "input_extra": [{"filename": "a.txt", "text": "A fox."}, {"text": "A hen."}]});
    let extra = tokens("--- snippet ---\n\na.txt\nA fox.\n\n--- snippet ---\n\nA hen.\n\n", false);
    same(more, &[&[&extra][..], &plain].concat());
    let long = json!({"input_prefix": "owl ".repeat(999), "input_suffix": "owl ".repeat(999),
        "input_extra": [{"text": "owl ".repeat(999)}], "n_predict": 8});
    assert_eq!(serving.post("/infill", &long).json()["tokens_evaluated"], 96 - 8);
    let body = json!({"model": "any", "prompt": "An owl", "suffix": " a <|user|> hill.", "stream": false,
        "max_tokens": 8, "options": {"num_predict": 8}});
    for (path, count) in [("/v1/completions", "/usage/prompt_tokens"), ("/api/generate", "/prompt_eval_count")] {
        let answer = serving.post(path, &body).json();
        let length: usize = plain.iter().map(|part| part.len()).sum();
        assert_eq!(answer.pointer(count), Some(&length.into()), "{path}: {answer}");
    }
    for (path, body, wrong) in [
        ("/infill", json!({"input_prefix": "a"}), "the text after the gap"),
        ("/infill", json!({"input_prefix": "a", "input_suffix": ["b"]}), "the text after the gap"),
        ("/infill", json!({"input_prefix": "a", "input_suffix": "b", "prompt": [1]}), "prompt: expected a string"),
        (
            "/infill",
            json!({"input_prefix": "a", "input_suffix": "b", "input_extra": [1]}),
            "input_extra[0]: expected an object",
        ),
        ("/infill", json!({"input_prefix": "a", "input_suffix": "b", "grammar": "x"}), "grammar: not supported"),
        ("/v1/completions", json!({"prompt": [1, 2], "suffix": "b"}), "prompt: expected a string or a list"),
        ("/v1/completions", json!({"prompt": "a", "suffix": "b", "echo": true}), "echo: not supported"),
    ] {
        let refused = serving.post(path, &body);
        assert!(refused.status == 400 && refused.text().contains(wrong), "{}", refused.text());
    }
}

#[test]
fn extended_the_cache_of_a_slot_can_be_erased() {
    let serving = Serving::start(&["-np", "1"]);
    let evaluated = || serving.post("/completion", &completion(&json!({}))).json()["timings"]["cache_n"].as_u64();
    assert_eq!(evaluated(), Some(0));
    assert!(evaluated() > Some(0));
    let mut erased = Value::Null;
    wait_for("the end of the reply", || {
        let answer = serving.post("/slots/0?action=erase", &json!({}));
        erased = answer.json();
        answer.status == 200
    });
    assert!(erased["id_slot"] == 0 && erased["n_erased"].as_u64() > Some(0), "{erased}");
    assert_eq!((evaluated(), serving.get("/slots").json()[0]["id"].as_u64()), (Some(0), Some(0)));
    for (path, word) in [
        ("/slots/0?action=save", "--slot-save-path"),
        ("/slots/0?action=restore", "--slot-save-path"),
        ("/slots/0", "erase"),
        ("/slots/1?action=erase", "below 1"),
    ] {
        let answer = serving.post(path, &json!({"filename": "a"}));
        assert!(answer.status == 400 && answer.text().contains(word), "{path}: {}", answer.text());
    }
}

/// The cache of a slot goes to a file, and comes back from there in another server.
#[test]
fn the_cache_of_a_slot_is_saved_and_restored() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("slots");
    let start =
        |keys: &[&str]| Serving::start(&[&["-np", "2", "--slot-save-path", files.to_str().unwrap()], keys].concat());
    let cached = |answer: Value| answer["timings"]["cache_n"].as_u64().unwrap();
    let file = json!({"filename": "a story.bin"});

    let first = start(&[]);
    assert_eq!(cached(first.post("/completion", &completion(&json!({}))).json()), 0);
    let mut saved = Value::Null;
    wait_for("the end of the reply", || {
        let answer = first.post("/slots/0?action=save", &file);
        saved = answer.json();
        answer.status == 200
    });
    let path = files.join("a story.bin");
    let bytes = std::fs::metadata(&path).unwrap().len();
    let tokens = saved["n_saved"].as_u64().unwrap();
    assert_eq!((saved["n_written"].as_u64(), &saved["filename"]), (Some(bytes), &file["filename"]), "{saved}");
    assert!(tokens > 4 && saved["timings"]["save_ms"].as_f64() > Some(0.0), "{saved}");
    #[cfg(unix)]
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions()) & 0o777, 0o600);
    drop(first);

    let second = start(&["--api-key", "anna", "--api-key", "ben", "--share-cache"]);
    let ask = |server: &Serving, key: &str, path: &str, body: &Value| {
        let headers = [("content-type", "application/json"), ("x-api-key", key)];
        super::ask(&server.address, "POST", path, &headers, body.to_string().as_bytes())
    };
    let restored = ask(&second, "anna", "/slots/1?action=restore", &file).json();
    assert_eq!(
        (restored["id_slot"].as_u64(), restored["n_restored"].as_u64(), restored["n_read"].as_u64()),
        (Some(1), Some(tokens), Some(bytes)),
        "{restored}"
    );
    assert!(cached(ask(&second, "ben", "/completion", &completion(&json!({}))).json()) > 0);
    drop(second);

    // Clients that share no cache share no files either.
    let third = start(&["--api-key", "anna", "--api-key", "ben"]);
    let none = ask(&third, "anna", "/slots/0?action=restore", &file);
    assert_eq!((none.status, &none.json()["error"]["param"]), (400, &"filename".into()), "{}", none.text());
    assert_eq!(ask(&third, "anna", "/slots/0?action=save", &file).json()["n_saved"], 0);
    std::fs::write(&path, "something else").unwrap();
    drop(third);
    let fourth = start(&[]);
    for (name, word) in [("a story.bin", "snapshot"), ("../slots/a story.bin", "a name"), ("", "a name")] {
        let answer = fourth.post("/slots/0?action=restore", &json!({"filename": name}));
        assert!(answer.status == 400 && answer.text().contains(word), "{name}: {}", answer.text());
        assert!(!answer.text().contains(folder.path().to_str().unwrap()), "{}", answer.text());
    }
}

/// A client does not erase what another has left in the cache.
#[test]
fn the_cache_of_another_client_stays() {
    let serving = Serving::start(&["-np", "1", "--api-key", "anna", "--api-key", "ben"]);
    let ask = |key: &str, path: &str, body: &Value| {
        let headers = [("content-type", "application/json"), ("x-api-key", key)];
        super::ask(&serving.address, "POST", path, &headers, body.to_string().as_bytes())
    };
    let evaluated = || ask("anna", "/completion", &completion(&json!({}))).json()["timings"]["cache_n"].as_u64();
    assert_eq!(evaluated(), Some(0));
    wait_for("the end of the reply", || {
        let answer = ask("ben", "/slots/0?action=erase", &json!({}));
        answer.status == 200 && answer.json()["n_erased"] == 0
    });
    assert!(evaluated() > Some(0));
}
