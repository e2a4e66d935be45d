//! Tests Ollama's API.

use super::client::{Answer, ask};
use super::{ANSWER, QUESTION, Serving, THOUGHT, shared};
use serde_json::{Value, json};

const PATHS: [&str; 2] = ["/api/chat", "/api/generate"];

/// A body for the path that asks the question whose answer is known, and does not ask for a stream.
fn body(path: &str) -> Value {
    let mut body = json!({"model": "any", "stream": false, "options": {"temperature": 0}});
    match path {
        "/api/chat" => body["messages"] = json!([{"role": "user", "content": QUESTION}]),
        _ => body["prompt"] = QUESTION.into(),
    }
    body
}

/// The same with an option.
fn with_option(path: &str, name: &str, value: Value) -> Value {
    let mut body = body(path);
    body["options"][name] = value;
    body
}

/// The thinking and the text of a line.
fn texts(path: &str, line: &Value) -> (String, String) {
    let (thinking, text) = match path {
        "/api/chat" => (&line["message"]["thinking"], &line["message"]["content"]),
        _ => (&line["thinking"], &line["response"]),
    };
    (thinking.as_str().unwrap_or_default().to_owned(), text.as_str().unwrap().to_owned())
}

fn known(texts: (String, String)) -> bool {
    (texts.0.trim(), texts.1.trim()) == (THOUGHT, ANSWER)
}

/// Checks the figures of a last line.
fn check_end(line: &Value, reason: &str) {
    assert_eq!((&line["done"], &line["done_reason"]), (&true.into(), &reason.into()), "{line}");
    for name in ["total_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration"] {
        assert!(line[name].as_u64().is_some_and(|figure| figure > 0), "{name}: {line}");
    }
    let longest = line["prompt_eval_duration"].as_u64().unwrap().max(line["eval_duration"].as_u64().unwrap());
    assert!(line["total_duration"].as_u64().unwrap() >= longest && line["load_duration"] == 0, "{line}");
}

#[test]
fn extended_a_question_is_answered() {
    for path in PATHS {
        let answer = shared().post(path, &body(path));
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let json = answer.json();
        assert!(known(texts(path, &json)), "{json}");
        check_end(&json, "stop");
        let created = json["created_at"].as_str().unwrap();
        assert!(created.len() >= 20 && created.ends_with('Z') && &created[10..11] == "T", "{created}");
    }
}

#[test]
fn a_stream_of_lines_is_the_default() {
    for path in PATHS {
        let mut body = body(path);
        body["stream"].take();
        let answer = shared().post(path, &body);
        assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
        let lines = answer.lines();
        let all = lines
            .iter()
            .map(|line| texts(path, line))
            .fold(<(String, String)>::default(), |all, next| (all.0 + &next.0, all.1 + &next.1));
        assert!(known(all), "{}", answer.text());
        let (last, before) = lines.split_last().unwrap();
        check_end(last, "stop");
        assert!(before.len() > 4 && before.iter().all(|line| line["done"] == false && line["created_at"].is_string()));
    }
}

#[test]
fn extended_the_model_thinks_unless_it_is_not_to() {
    for path in PATHS {
        for (think, thinks) in [(json!(false), false), (json!("high"), true), (json!(null), true)] {
            let mut body = body(path);
            body["think"] = think.clone();
            let (thinking, text) = texts(path, &shared().post(path, &body).json());
            assert_eq!((thinking.is_empty(), text.is_empty()), (!thinks, false), "{path}, {think}");
        }
        // The field and the options together: the model does not think if one of them turns that off.
        for (think, option) in [(false, json!({"reasoning_effort": "high"})), (true, json!({"enable_thinking": false}))]
        {
            let mut body = body(path);
            body["think"] = think.into();
            body["options"].as_object_mut().unwrap().extend(option.as_object().unwrap().clone());
            let (thinking, _) = texts(path, &shared().post(path, &body).json());
            assert!(thinking.is_empty(), "{path}, {think}, {option}: {thinking}");
        }
    }
}

#[test]
fn extended_options_end_a_reply() {
    let serving = shared();
    for path in PATHS {
        let cut = serving.post(path, &with_option(path, "num_predict", 3.into())).json();
        check_end(&cut, "length");
        assert_eq!(cut["eval_count"], 3);
        let stopped = serving.post(path, &with_option(path, "stop", json!(["five"]))).json();
        assert_eq!((texts(path, &stopped).1.trim(), &stopped["done_reason"]), ("Seven plus", &"stop".into()));
        let large = serving.post(path, &with_option(path, "num_ctx", 4096.into())).json();
        let warning = "options.num_ctx: 4096 has no effect; the server has a context of 1024 tokens (-c)";
        assert_eq!(large["warnings"], json!([warning]));
    }
}

/// Programs send such a request so that the model is loaded before the first question.
#[test]
fn without_a_prompt_the_model_is_loaded() {
    for (path, fields) in [
        ("/api/chat", json!({"message": {"role": "assistant", "content": ""}})),
        ("/api/generate", json!({"response": ""})),
    ] {
        for stream in [true, false] {
            let asked = json!({"model": "any", "stream": stream, "keep_alive": -1});
            let [line] = &shared().post(path, &asked).lines()[..] else { panic!("{path}: not one line") };
            assert_eq!((&line["done"], &line["done_reason"]), (&true.into(), &"load".into()), "{line}");
            let (name, value) = fields.as_object().unwrap().iter().next().unwrap();
            assert_eq!(&line[name], value);
        }
        for (keep, reason) in [(json!(0), "unload"), (json!("0"), "unload"), (json!("5m"), "load")] {
            let asked = json!({"model": "any", "messages": [], "prompt": "", "keep_alive": keep});
            let [line] = &shared().post(path, &asked).lines()[..] else { panic!("{path}: not one line") };
            assert_eq!(line["done_reason"], reason, "{path}: {keep}");
        }
    }
}

#[test]
fn extended_an_answer_has_the_format() {
    let schema = json!({"type": "object", "properties": {"legs": {"type": "integer", "minimum": 0, "maximum": 8}},
        "required": ["legs"], "additionalProperties": false});
    for path in PATHS {
        let mut body = with_option(path, "num_predict", 200.into());
        body["format"] = schema.clone();
        let json = shared().post(path, &body).json();
        let legs: Value = serde_json::from_str(&texts(path, &json).1).unwrap();
        assert!(legs["legs"].as_u64().is_some_and(|legs| legs <= 8), "{json}");
        (body["format"], body["options"]["num_predict"]) = ("json".into(), 24.into());
        let json = shared().post(path, &body).json();
        assert!(texts(path, &json).1.starts_with('{'), "{json}");
        body["format"] = json!({"type": "integer", "maximum": 0, "minimum": 1});
        assert_eq!(shared().post(path, &body).status, 400);
    }
}

#[test]
fn extended_calls_and_their_results_are_accepted() {
    let mut body = with_option("/api/chat", "num_predict", 4.into());
    body["tools"] = json!([{"type": "function", "function": {"name": "add", "description": "adds",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}]);
    body["messages"] = json!([
        {"role": "system", "content": "You add."},
        {"role": "user", "content": QUESTION, "images": []},
        {"role": "assistant", "content": "", "thinking": "add",
         "tool_calls": [{"function": {"index": 0, "name": "add", "arguments": {"a": 7, "b": 5}}}]},
        {"role": "tool", "tool_name": "add", "content": "12"}]);
    let json = shared().post("/api/chat", &body).json();
    check_end(&json, "length");
}

/// Home Assistant sends numbers as floating point, and only the end of a long conversation.
#[test]
fn requests_of_home_assistant_are_accepted() {
    let mut body = body("/api/chat");
    body["options"] = json!({"num_predict": 2.0, "num_ctx": 1024.0, "top_k": 40.0, "seed": 7.0});
    let json = shared().post("/api/chat", &body).json();
    assert_eq!((&json["eval_count"], &json["warnings"]), (&json!(2), &Value::Null), "{json}");
    body["options"]["num_ctx"] = 1024.5.into();
    let refused = shared().post("/api/chat", &body);
    assert_eq!((refused.status, refused.text().contains("options.num_ctx: expected an integer")), (400, true));

    let mut body = with_option("/api/chat", "num_predict", 2.into());
    body["messages"] = json!([{"role": "system", "content": "Be brief."}, {"role": "tool", "content": "on"},
        {"role": "assistant", "content": "It is on."}, {"role": "user", "content": QUESTION}]);
    let json = shared().post("/api/chat", &body).json();
    let warning = "messages: a result without an earlier call became a message of the user";
    assert_eq!((&json["done"], &json["warnings"]), (&json!(true), &json!([warning])));
    let chat = json!({"messages": body["messages"]});
    assert_eq!(shared().post("/v1/chat/completions", &chat).status, 400, "OpenAI's API pairs them");
}

/// Ollama ignores most samplers, and names that it does not know.
#[test]
fn options_that_ollama_ignores_are_named() {
    let mut body = body("/api/chat");
    let options = json!({"num_predict": 2, "typical_p": 0.7, "mirostat": 1, "f16_kv": true, "num_gpu": 1});
    (body["options"], body["f16_kv"]) = (options, true.into());
    let json = shared().post("/api/chat", &body).json();
    let names = ["f16_kv", "options.f16_kv", "options.typical_p", "options.mirostat"];
    let mut warnings: Vec<&str> = json["warnings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let mut wanted = names.map(|name| format!("{name}: not supported; ignored"));
    warnings.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(warnings, wanted);
    body["options"] = json!({"grammar": "root ::= \"a\""});
    let refused = shared().post("/api/chat", &body);
    assert!(refused.status == 400 && refused.text().contains("options.grammar"), "{}", refused.text());
}

/// An option has its name in the request, whatever part of the server refuses it.
#[test]
fn errors_name_the_option() {
    for path in PATHS {
        for (name, value) in [
            ("temperature", json!("hot")),
            ("temperature", json!(-1)),
            ("stop", json!(vec!["x"; 65])),
            ("logit_bias", json!({"": 1})),
            ("chat_template_kwargs", json!(3)),
            ("reasoning_effort", json!(3)),
        ] {
            let refused = shared().post(path, &with_option(path, name, value));
            let message = refused.json()["error"].as_str().unwrap().to_owned();
            assert!(refused.status == 400 && message.starts_with(&format!("options.{name}: ")), "{path}: {message}");
        }
    }
    let mut raw = with_option("/api/generate", "stop", json!(vec!["x"; 65]));
    raw["raw"] = true.into();
    let message = shared().post("/api/generate", &raw).json()["error"].as_str().unwrap().to_owned();
    assert!(message.starts_with("options.stop: 65 strings"), "{message}");
}

/// Only a picture in the last message of the user is refused.
#[test]
fn extended_earlier_pictures_are_mentioned() {
    let mut body = with_option("/api/chat", "num_predict", 2.into());
    let seen = json!({"role": "user", "content": "What is it?", "images": ["aGVu"]});
    let asked = json!({"role": "user", "content": QUESTION});
    let prompt = |first: &Value| json!([first, {"role": "assistant", "content": "A hen."}, asked]);
    body["messages"] = prompt(&seen);
    let answer = shared().post("/api/chat", &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let said = json!({"role": "user", "content": "What is it?\n[An image was here; this model cannot see it.]"});
    body["messages"] = prompt(&said);
    let same = shared().post("/api/chat", &body).json();
    assert_eq!(answer.json()["prompt_eval_count"], same["prompt_eval_count"]);
}

/// A conversation that is too long loses its oldest messages, as in Ollama, unless the request says otherwise.
#[test]
fn a_long_conversation_is_truncated() {
    let mut body = with_option("/api/chat", "num_predict", 2.into());
    let long = "The fox has a hen and a red boat. ".repeat(60);
    let turn = |role: &str| json!({"role": role, "content": long});
    body["messages"] = json!([turn("user"), turn("assistant"), turn("user"), turn("assistant"),
        {"role": "user", "content": QUESTION}]);
    let json = shared().post("/api/chat", &body).json();
    assert!(json["warnings"][0].as_str().unwrap().contains("oldest"), "{json}");
    body["truncate"] = false.into();
    let refused = shared().post("/api/chat", &body);
    assert!(refused.status == 400 && refused.json()["error"].as_str().unwrap().contains("too long"));
}

#[test]
fn extended_a_raw_prompt_has_no_template() {
    let serving = shared();
    let raw = |prompt: &str| json!({"prompt": prompt, "raw": true, "stream": false, "options": {"temperature": 0, "num_predict": 8}});
    let json = serving.post("/api/generate", &raw("Once upon a time")).json();
    let same = json!({"prompt": "Once upon a time", "temperature": 0, "max_tokens": 8});
    let completion = serving.post("/v1/completions", &same).json();
    assert_eq!(json["response"], completion["choices"][0]["text"]);
    assert_eq!(json["prompt_eval_count"], completion["usage"]["prompt_tokens"]);
    let mut with_think = raw("Once upon a time");
    with_think["think"] = false.into();
    let json = serving.post("/api/generate", &with_think).json();
    assert_eq!(json["warnings"], json!(["think: not supported; ignored"]));
    let templated = serving.post("/apply-template", &json!({"messages": [{"role": "user", "content": QUESTION}]}));
    let mut body = raw(templated.json()["prompt"].as_str().unwrap());
    body["options"]["num_predict"] = 100.into();
    let text = serving.post("/api/generate", &body).json()["response"].as_str().unwrap().to_owned();
    assert!(text.contains(THOUGHT) && text.contains(ANSWER), "{text}");
}

#[test]
fn extended_a_system_prompt_comes_first() {
    let mut body = body("/api/generate");
    let alone = shared().post("/api/generate", &body).json();
    body["system"] = "You are a fox.".into();
    let json = shared().post("/api/generate", &body).json();
    assert!(json["prompt_eval_count"].as_u64() > alone["prompt_eval_count"].as_u64(), "{json}");
}

#[test]
fn what_is_not_supported_is_refused() {
    for (path, field, value) in [
        ("/api/generate", "suffix", json!("the end")),
        ("/api/generate", "template", json!("{{ .Prompt }}")),
        ("/api/generate", "images", json!(["aGVu"])),
        ("/api/generate", "context", json!([1, 2])),
        ("/api/chat", "messages", json!([{"role": "user", "content": "What is it?", "images": ["aGVu"]}])),
        ("/api/chat", "think", json!(3)),
        ("/api/chat", "format", json!("xml")),
        ("/api/chat", "options", json!({"temperature": -1})),
    ] {
        let mut body = body(path);
        body[field] = value;
        let answer = shared().post(path, &body);
        assert!(answer.status == 400 && answer.json()["error"].is_string(), "{path}, {field}: {}", answer.text());
    }
    for (field, value) in [("system", json!("You are a fox.")), ("format", json!("json"))] {
        let mut body = body("/api/generate");
        (body["raw"], body[field]) = (true.into(), value);
        let message = shared().post("/api/generate", &body).json()["error"].as_str().unwrap().to_owned();
        assert!(message.starts_with(&format!("{field}: not supported together with raw")), "{message}");
    }
}

#[test]
fn extended_the_model_is_described() {
    let serving = Serving::start(&["--alias", "owl", "--temp", "0.5"]);
    let tags = serving.get("/api/tags").json();
    let [model] = &tags["models"].as_array().unwrap()[..] else { panic!("{tags}") };
    assert_eq!([&model["name"], &model["model"]], ["owl", "owl"]);
    assert!(model["size"].as_u64().unwrap() > 1_000_000 && model["digest"].as_str().unwrap().len() == 64, "{model}");
    let details = &model["details"];
    assert_eq!([&details["format"], &details["family"]], ["gguf", "deepseek2"]);
    assert_eq!(details["quantization_level"], "Q4_0");
    assert!(details["parameter_size"].as_str().unwrap().ends_with('M'), "{details}");
    let ps = serving.get("/api/ps").json();
    let running = &ps["models"][0];
    assert_eq!((&running["name"], &running["context_length"]), (&"owl".into(), &1024.into()));
    assert!(running["size_vram"].as_u64().unwrap() > 1_000_000 && running["expires_at"].is_string(), "{running}");
    // The name of another model is ignored, as it is in requests for replies.
    for name in ["owl", "llama3"] {
        let shown = serving.post("/api/show", &json!({"model": name})).json();
        assert_eq!(&shown["details"], details);
        assert_eq!(shown["capabilities"], json!(["completion", "tools", "thinking"]));
        let info = &shown["model_info"];
        assert_eq!(info["general.architecture"], "deepseek2");
        assert!(info["deepseek2.context_length"].is_u64() && info["general.parameter_count"].is_u64(), "{info}");
        assert!(info["tokenizer.ggml.tokens"].is_null() && info["tokenizer.chat_template"].is_null());
        assert!(shown["template"].as_str().unwrap().contains("<|user|>"));
        let parameters = shown["parameters"].as_str().unwrap();
        let has = |name: &str, value: &str| {
            parameters.lines().any(|line| line.split_whitespace().collect::<Vec<_>>() == [name, value])
        };
        assert!(has("num_ctx", "1024") && has("temperature", "0.5"), "{parameters}");
    }
    let version = serving.get("/api/version").json()["version"].as_str().unwrap().to_owned();
    assert_eq!(version.split('.').filter_map(|part| part.parse::<u64>().ok()).count(), 3, "{version}");
}

/// The first thing that programs for Ollama do.
#[test]
fn extended_a_server_is_found_at_its_root() {
    let head = ask(&shared().address, "HEAD", "/", &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
    let without = Serving::start(&["--no-page"]);
    assert_eq!(ask(&without.address, "HEAD", "/", &[], b"").status, 200);
}

#[test]
fn extended_errors_have_its_form() {
    let serving = Serving::start(&["--api-key", "secret"]);
    let ask = |method: &str, path: &str, headers: &[(&str, &str)], body: &Value| -> Answer {
        let headers =
            [&[("authorization", "Bearer secret"), ("content-type", "application/json")][..], headers].concat();
        ask(&serving.address, method, path, &headers, body.to_string().as_bytes())
    };
    let page = [("origin", "https://other.example")];
    for (answer, status, words) in [
        (serving.get("/api/tags"), 401, "key"),
        (serving.post("/api/chat", &json!({})), 401, "key"),
        (ask("POST", "/api/chat", &page, &json!({})), 403, "origin"),
        (ask("POST", "/api/chat", &[], &json!({"messages": 3})), 400, "messages: expected a list"),
        (ask("GET", "/api/chat", &[], &json!({})), 405, "use POST"),
        (ask("POST", "/api/nothing", &[], &json!({})), 404, "no such path"),
        (ask("POST", "/api/embed", &[], &json!({"input": ["x", ""]})), 400, "text 1: it is empty"),
        (ask("POST", "/api/embed", &[], &json!({"input": "x", "dimensions": 1})), 400, "dimensions"),
        (ask("POST", "/api/pull", &[], &json!({"model": "owl"})), 400, "use `wglm pull`"),
        (ask("DELETE", "/api/delete", &[], &json!({"model": "owl"})), 400, "use `wglm pull`"),
    ] {
        let json = answer.json();
        let message = json["error"].as_str().unwrap_or_else(|| panic!("{json}"));
        assert!(answer.status == status && message.contains(words), "{}: {message}", answer.status);
        assert_eq!(json.as_object().unwrap().len(), 1, "{json}");
    }
    assert_eq!(ask("GET", "/api/tags", &[], &json!({})).status, 200);
}

#[test]
fn extended_the_progress_of_a_prompt_is_reported_on_request() {
    let mut body = with_option("/api/chat", "return_progress", true.into());
    body["stream"] = true.into();
    let lines = shared().post("/api/chat", &body).lines();
    let reports: Vec<&Value> = lines.iter().map(|line| &line["prompt_progress"]).filter(|it| it.is_object()).collect();
    let last = reports.last().unwrap();
    assert_eq!(last["processed"], last["total"]);
}
