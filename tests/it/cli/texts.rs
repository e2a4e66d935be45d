//! Tests the commands `template` and `tokenize`.

use super::{command, fed, json, outcome, refused, refuses, succeed, wglm, written};
use crate::common::gguf_writer::{GgufWriter, Meta};
use crate::common::models::fixture;
use serde_json::Value;
use tempfile::TempDir;

#[test]
fn extended_templates_are_rendered_as_jinja2_renders_them() {
    let dir = TempDir::new().unwrap();
    let goldens = json(&std::fs::read_to_string(fixture("chat_template.json")).unwrap());
    let (mut rendered, mut beyond) = (0, 0);
    for case in goldens["cases"].as_array().unwrap() {
        let mut input = case["input"].as_object().unwrap().clone();
        let file = |name: &str, value: Value| written(&dir, name, value.to_string().as_bytes()).display().to_string();
        let mut line = format!("template --messages {}", file("messages.json", input.remove("messages").unwrap()));
        if let Some(tools) = input.remove("tools") {
            line += &format!(" --tools {}", file("tools.json", tools));
        }
        if let Some(thinks) = input.remove("enable_thinking") {
            line += if thinks == true { " --reasoning on" } else { " --reasoning off" };
        }
        if input.remove("add_generation_prompt") == Some(Value::Bool(false)) {
            line += " --no-generation-prompt";
        }
        if !input.is_empty() {
            beyond += 1; // a variable for which the command has no option
            continue;
        }
        rendered += 1;
        assert_eq!(succeed(&line).out, case["rendered"].as_str().unwrap(), "{}", case["input"]);
    }
    assert!(rendered >= 8 && beyond <= 2, "{rendered} rendered, {beyond} beyond the flags");
}

#[test]
fn messages_that_are_refused() {
    let expected = "expected a JSON array of messages with `role` and `content`";
    for (messages, words) in [
        ("[", expected),
        ("", expected),
        ("{}", expected),
        (r#"[{"content":"x"}]"#, "missing field `role`"),
        (r#"[{"role":"user","content":5}]"#, expected),
        (r#"[{"role":"critic","content":"x"}]"#, "a message with the role critic"),
    ] {
        let done = fed(command(["template", "--messages", "-"]), messages.as_bytes());
        refused(messages, &done, words);
        assert!(words != expected || done.err.starts_with("error: stdin: "), "{done:?}");
    }
    let dir = TempDir::new().unwrap();
    let [messages, tools] = [("m.json", "[]"), ("t.json", "{}")].map(|(n, t)| written(&dir, n, t.as_bytes()));
    let line = format!("template --messages {} --tools {}", messages.display(), tools.display());
    refuses(&line, "expected a JSON array of tools");
    let both = wglm("template --messages - --tools -");
    assert!(both.code == Some(2) && both.err.contains("cannot both read stdin"), "{both:?}");
}

#[test]
fn extended_tokens_are_those_of_llama_cpp() {
    let goldens = json(&std::fs::read_to_string(fixture("tokenizer.json")).unwrap());
    // Every process takes a moment; the library's own test covers all cases.
    for case in goldens["cases"].as_array().unwrap().iter().step_by(3) {
        let text = case["text"].as_str().unwrap();
        if text == "-" || text.contains('\0') {
            continue; // stdin, and text that no argument can contain
        }
        let done = outcome(command(["tokenize", "--json", "--", text]));
        assert_eq!(json(&done.out), case["ids"], "{text:?}");
    }
    let ids = |rest: &str| json(&succeed(&format!("tokenize --ids {rest}")).out).as_array().unwrap().len();
    assert!(ids("<|user|>") == 1 && ids("--no-parse-special <|user|>") > 1);
    assert!(ids("</think>") == 1 && ids("--no-parse-special </think>") > 1);
    let table = fed(command(["tokenize", "-"]), b"Hi\n").out;
    assert_eq!(table, "   1011 \"Hi\"\n    198 \"\\n\"\n");
}

/// Every byte of stdin counts, so that other programs can be compared on the same text.
#[test]
fn extended_stdin_is_split_unchanged() {
    for text in ["one\r\n\r\ntwo\r\n", "\u{feff}hi\n", "a\n\n", " "] {
        let [piped, given] = [
            fed(command(["tokenize", "--ids", "-"]), text.as_bytes()),
            outcome(command(["tokenize", "--ids", "--", text])),
        ];
        assert_eq!((piped.code, &piped.out), (Some(0), &given.out), "{text:?}");
    }
    refused("bytes", &fed(command(["tokenize", "-"]), b"a\xff"), "cannot read stdin: invalid UTF-8 at byte 1");
}

/// A file may require a token before every text.
#[test]
fn the_token_before_a_text_can_be_left_out() {
    let plain = |b: &u32| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let bytes = (0..256).filter(plain).chain(256..256 + 68).filter_map(char::from_u32).map(String::from);
    let tokens: Vec<Meta> = bytes.chain(["he".into(), "<s>".into()]).map(|token| token.as_str().into()).collect();
    let types = (0..258).map(|id| Meta::from(if id < 257 { 1i32 } else { 3 })).collect();
    let writer = GgufWriter::new()
        .meta("tokenizer.ggml.model", "gpt2")
        .meta("tokenizer.ggml.pre", "glm4")
        .meta("tokenizer.ggml.tokens", Meta::Array(8, tokens))
        .meta("tokenizer.ggml.token_type", Meta::Array(5, types))
        .meta("tokenizer.ggml.merges", Meta::Array(8, vec!["h e".into()]))
        .meta("tokenizer.ggml.bos_token_id", 257u32)
        .meta("tokenizer.ggml.eos_token_id", 257u32)
        .meta("tokenizer.ggml.add_bos_token", true);
    let dir = TempDir::new().unwrap();
    let file = written(&dir, "bos.gguf", &writer.finish()).display().to_string();
    let ids = |rest: &str| json(&succeed(&format!("tokenize --ids -m {file} {rest}")).out);
    assert_eq!((ids("a"), ids("--no-bos a")), (json("[257,64]"), json("[64]")));
    assert_eq!(succeed("tokenize --no-bos hello").out, succeed("tokenize hello").out);
}
