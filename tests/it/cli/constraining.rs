//! Tests answers that a file constrains.

use super::{QUESTION, command, fed, json, refuses, run_prompt, try_prompt, wglm, written};
use tempfile::TempDir;

const SCHEMA: &str = r#"{"type": "object", "properties": {"sum": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["sum"], "additionalProperties": false}"#;

#[test]
fn by_a_schema_and_a_grammar() {
    let dir = TempDir::new().unwrap();
    let schema = written(&dir, "sum.json", format!("\u{feff}{SCHEMA}\n").as_bytes()).display().to_string();
    let grammar = written(&dir, "sum.lark", b"start: \"It is \" /[0-9]{2}/ \".\"\n").display().to_string();
    for rest in ["--temp 0", "--reasoning off --temp 2 -s 3"] {
        let done = run_prompt(QUESTION, &format!("{rest} --json-schema {schema}"));
        assert!(json(&done.out)["sum"].as_u64().unwrap() <= 99, "{done:?}");
        let done = run_prompt(QUESTION, &format!("{rest} --grammar {grammar}"));
        let digits = done.out.strip_prefix("It is ").and_then(|rest| rest.strip_suffix(".\n")).unwrap();
        assert!(digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit()), "{done:?}");
    }
    // Blanks only where they are asked for, and what cannot be held only where it may be left out.
    let done = run_prompt(QUESTION, &format!("--reasoning off --temp 2 -s 4 --json-schema {schema}"));
    assert!(!done.out.trim_end().contains([' ', '\n']), "{done:?}");
    let set =
        written(&dir, "set.json", SCHEMA.replace("\"minimum\": 0", "\"dependentRequired\": {\"a\": []}").as_bytes());
    let set = set.display().to_string();
    refuses(&format!("run hi --json-schema {set}"), "JSON schema, #/properties/sum: `dependentRequired`");
    run_prompt(QUESTION, &format!("--reasoning off --temp 0 --json-schema {set} --json-lenient --json-whitespace"));
    // The object of --json says whether the answer is whole.
    for (most, stop) in [(200, "end"), (3, "length")] {
        let done = try_prompt(QUESTION, &format!("--reasoning off --temp 0 --json -n {most} --json-schema {schema}"));
        let told = json(&done.out);
        assert_eq!(told["stop"], stop, "{done:?}");
        let whole = serde_json::from_str::<serde_json::Value>(told["text"].as_str().unwrap()).is_ok();
        assert_eq!(whole, stop == "end", "{done:?}");
    }
    // Without a template the answer begins at once; in a conversation every answer matches.
    let raw = run_prompt("Seven plus five is", &format!("--raw --temp 0 --grammar {grammar}"));
    assert!(raw.out.starts_with("It is "), "{raw:?}");
    let talk = command(["chat", "--reasoning", "off", "--temp", "0", "-q", "--json-schema", &schema]);
    let talked = fed(talk, b"What is seven plus five?\nAnd six plus one?\n");
    let answers: Vec<&str> = talked.out.lines().filter(|line| !line.is_empty()).collect();
    assert!(answers.len() == 2 && answers.iter().all(|answer| json(answer)["sum"].is_u64()), "{talked:?}");
}

#[test]
fn what_is_no_constraint() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str, text: &str| written(&dir, name, text.as_bytes()).display().to_string();
    refuses("run hi --json-schema nosuch.json", "cannot read nosuch.json");
    refuses("run hi --grammar nosuch.lark", "cannot read nosuch.lark");
    let broken = file("broken.json", "{\"type\": ");
    refuses(&format!("run hi --json-schema {broken}"), "broken.json: JSON schema: it is not JSON: EOF");
    let unmet = file("unmet.json", &SCHEMA.replace("\"maximum\": 99", "\"maximum\": -1"));
    refuses(&format!("run hi --json-schema {unmet}"), "JSON schema, #/properties/sum: ");
    let odd = file("odd.lark", "start: nosuch\n");
    refuses(&format!("chat --grammar {odd}"), "odd.lark: grammar: at 1(8): unknown name: \"nosuch\"");
    let both = wglm(&format!("run hi --json-schema {unmet} --grammar {odd}"));
    assert!(both.code == Some(2) && both.err.contains("cannot be used with"), "{both:?}");
    let stdin = fed(command(["run", "hi", "--reasoning", "off", "--json-schema", "-"]), b"[]");
    assert!(stdin.code == Some(1) && stdin.err.contains("stdin: JSON schema, #: expected an object"), "{stdin:?}");
}
