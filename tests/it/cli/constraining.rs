//! Tests answers that must match a schema or a grammar.

use super::{QUESTION, command, fed, json, outcome, refuses, run_prompt, try_prompt, wglm, written};
use tempfile::TempDir;

const SCHEMA: &str = r#"{"type": "object", "properties": {"sum": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["sum"], "additionalProperties": false}"#;

#[test]
fn extended_by_a_schema_and_a_grammar() {
    let dir = TempDir::new().unwrap();
    let schema = written(&dir, "sum.json", format!("\u{feff}{SCHEMA}\n").as_bytes()).display().to_string();
    let grammar = written(&dir, "sum.lark", b"start: \"It is \" /[0-9]{2}/ \".\"\n").display().to_string();
    let done = run_prompt(QUESTION, &format!("--temp 0 --grammar {grammar}"));
    let digits = done.out.strip_prefix("It is ").and_then(|rest| rest.strip_suffix(".\n")).unwrap();
    assert!(digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit()), "{done:?}");
    // Blanks appear only if requested, and unsupported keywords are ignored only if allowed.
    let done = run_prompt(QUESTION, &format!("--reasoning off --temp 2 -s 4 --json-schema {schema}"));
    assert!(json(&done.out)["sum"].as_u64().unwrap() <= 99, "{done:?}");
    assert!(!done.out.trim_end().contains([' ', '\n']), "{done:?}");
    let set =
        written(&dir, "set.json", SCHEMA.replace("\"minimum\": 0", "\"dependentRequired\": {\"a\": []}").as_bytes());
    let set = set.display().to_string();
    refuses(&format!("run hi --json-schema {set}"), "JSON schema, #/properties/sum: `dependentRequired`");
    run_prompt(QUESTION, &format!("--reasoning off --temp 0 --json-schema {set} --json-lenient --json-whitespace"));
    // An object that needs another property is impossible once it is closed.
    let two = SCHEMA.replace("\"additionalProperties\": false", "\"minProperties\": 2");
    let two = written(&dir, "two.json", two.as_bytes()).display().to_string();
    refuses(&format!("run hi --json-schema {two} --json-closed"), "two.json: JSON schema, #: no value is valid");
    assert_eq!(try_prompt(QUESTION, &format!("--reasoning off --temp 0 -n 2 --json-schema {two}")).code, Some(3));
    // The object of --json says whether the answer is complete.
    for (most, stop) in [(200, "end"), (3, "length")] {
        let done = try_prompt(QUESTION, &format!("--reasoning off --temp 0 --json -n {most} --json-schema {schema}"));
        let told = json(&done.out);
        assert_eq!(told["stop"], stop, "{done:?}");
        let whole = serde_json::from_str::<serde_json::Value>(told["text"].as_str().unwrap()).is_ok();
        assert_eq!(whole, stop == "end", "{done:?}");
        assert_eq!(done.code, Some(if whole { 0 } else { 3 }), "{done:?}");
    }
    // Without a template the answer begins at once; in a conversation every answer matches.
    let raw = run_prompt("Seven plus five is", &format!("--raw --temp 0 --grammar {grammar}"));
    assert!(raw.out.starts_with("It is "), "{raw:?}");
    let talk = command(["chat", "--reasoning", "off", "--temp", "0", "-q", "--json-schema", &schema]);
    let talked = fed(talk, b"What is seven plus five?\nAnd six plus one?\n");
    let answers: Vec<&str> = talked.out.lines().filter(|line| !line.is_empty()).collect();
    assert!(answers.len() == 2 && answers.iter().all(|answer| json(answer)["sum"].is_u64()), "{talked:?}");
}

/// An answer that ended too early is neither a value nor a match: the exit status and a line say so, even with quiet
/// output.
#[test]
fn long_an_answer_that_is_cut_off_fails() {
    for (rest, most, code) in [("", 3, 3), ("-q", 200, 0)] {
        let mut run =
            command(["run", QUESTION, "--reasoning", "off", "--temp", "0", "-j", SCHEMA, "-n", &most.to_string()]);
        run.args(rest.split_whitespace());
        let done = outcome(run);
        assert!(done.code == Some(code) && done.out.starts_with('{'), "{rest} {most}: {done:?}");
        match (rest, code) {
            ("", _) => assert!(done.err.contains(", the -n limit was reached: the answer is cut off"), "{done:?}"),
            _ => assert_eq!(done.err, "", "{done:?}"),
        }
    }
    let stop = try_prompt(QUESTION, &format!("{CONSTANT} -q -r is"));
    assert_eq!(
        (stop.code, stop.err.as_str()),
        (Some(3), "the answer is cut off: a stop string (-r) came up\n"),
        "{stop:?}"
    );
    // An answer that already matches its grammar is complete, and one that does not yet match is cut.
    for (grammar, err, code) in
        [("start: /[a-z ]+/", "", 0), ("start: /[a-z ]{200}/", "the answer is cut off: the -n limit was reached\n", 3)]
    {
        let run =
            command(["run", QUESTION, "--reasoning", "off", "--temp", "0", "-q", "-n", "5", "--grammar", grammar]);
        let open = outcome(run);
        assert_eq!((open.code, open.err.as_str()), (Some(code), err), "{grammar}: {open:?}");
    }
    // An unconstrained answer is complete at any length, if the length was requested.
    let free = try_prompt(QUESTION, "--reasoning off --temp 0 -q -n 2");
    assert_eq!((free.code, free.err.as_str()), (Some(0), ""), "{free:?}");
    let full = try_prompt(QUESTION, "--temp 0 -q -c 20");
    assert_eq!(
        (full.code, full.err.as_str()),
        (Some(0), "the answer is cut off: the context is full (-c)\n"),
        "{full:?}"
    );
    let talk = command(["chat", "--reasoning", "off", "--temp", "0", "-q", "-j", SCHEMA, "-n", "3"]);
    let talked = fed(talk, QUESTION.as_bytes());
    assert_eq!(
        (talked.code, talked.err.as_str()),
        (Some(3), "the answer is cut off: the -n limit was reached\n"),
        "{talked:?}"
    );
}

/// A grammar without blanks.
const CONSTANT: &str = "--reasoning off --temp 0 --grammar start:/It.is/";

/// Schemas and grammars can be given as text, as for llama.cpp.
#[test]
fn long_constraints_are_given_as_text_or_file() {
    let dir = TempDir::new().unwrap();
    let schema = written(&dir, "sum.json", SCHEMA.as_bytes()).display().to_string();
    let grammar = written(&dir, "sum.lark", b"start: \"twelve\"").display().to_string();
    let answer = |option: &str, text: &str| {
        let done = outcome(command(["run", QUESTION, "--reasoning", "off", "--temp", "0", "-q", option, text]));
        assert_eq!(done.code, Some(0), "{option} {text}: {done:?}");
        done.out
    };
    let sum = answer("--json-schema", &schema);
    for (option, text) in [("-j", SCHEMA), ("--json-schema-file", &schema)] {
        assert_eq!(answer(option, text), sum, "{option}");
    }
    for (option, text) in [("--grammar", &*grammar), ("--grammar-file", &grammar), ("--grammar", "\nstart: \"twelve\"")]
    {
        assert_eq!(answer(option, text), "twelve\n", "{option} {text}");
    }
    for (option, text, words) in [
        ("--grammar", "root ::= \"a\"", "error: --grammar: this is a grammar in llama.cpp's GBNF syntax"),
        ("--grammar", "start: nosuch", "error: --grammar: grammar: at 1(8): unknown name: \"nosuch\""),
        ("-j", "{\"type\": ", "error: --json-schema: JSON schema: it is not JSON: EOF"),
        ("-j", "[]", "error: --json-schema: JSON schema, #: expected an object"),
        ("-jf", "{}", "error: cannot read {}: "),
        ("--grammar-file", "start: \"a\"", "error: cannot read start: "),
    ] {
        let done = outcome(command(["run", QUESTION, option, text]));
        assert!(done.code == Some(1) && done.err.contains(words), "{option} {text}: {done:?}");
    }
    let gbnf = written(&dir, "list.gbnf", b"# items\nroot ::= item+\nitem ::= \"- \" [a-z]+\n").display().to_string();
    refuses(&format!("chat --grammar {gbnf}"), "list.gbnf: this is a grammar in llama.cpp's GBNF syntax; wglm accepts");
    for args in [["run", "-", "-j", "-"], ["run", "-", "--grammar-file", "-"]] {
        let both = outcome(command(args));
        assert!(both.code == Some(2) && both.err.contains("cannot both be read from stdin"), "{both:?}");
    }
}

#[test]
fn invalid_constraints_are_refused() {
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
