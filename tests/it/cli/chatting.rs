//! Tests conversations over pipes.

use super::{ANSWER, CommandResult, QUESTION, THOUGHT, command, fed, figures, json, succeed, written};
use tempfile::TempDir;

/// Runs a conversation over pipes: writes the lines to its stdin and returns all its output.
fn chat(rest: &str, lines: &[&str]) -> CommandResult {
    let done = try_chat(rest, lines.join("\n").as_bytes());
    assert_eq!(done.code, Some(0), "{done:?}");
    done
}

fn try_chat(rest: &str, input: &[u8]) -> CommandResult {
    fed(command(["chat"].into_iter().chain(rest.split_whitespace())), input)
}

#[test]
fn extended_a_conversation_computes_only_what_is_new() {
    let lines = ["My name is Clara.", "", "What is the opposite of dark?", "What is my name?"];
    let done = chat("--reasoning off --temp 0", &lines);
    assert_eq!(done.out, "Nice to meet you, Clara!\nThe opposite of dark is light.\nYour name is Clara.\n");
    let turns = figures(&done.err);
    assert_eq!(turns.len(), 3);
    // The last prompt is that of dialog2, which is 42 tokens long. The reply and the end of the turn stay in the cache
    // for the next prompt.
    assert_eq!(turns[2][0] + turns[2][1], 42, "{turns:?}");
    assert_eq!(turns[0][0], 0);
    for pair in turns.windows(2) {
        assert_eq!(pair[1][0], pair[0].iter().sum::<usize>(), "cached is what the turn before left: {turns:?}");
    }
}

#[test]
fn extended_commands_of_a_conversation() {
    let lines = ["/help", "/nosuch", QUESTION, "/clear", "/reasoning off", QUESTION, "/exit", "never said"];
    let done = try_chat("--temp 0", lines.join("\n").as_bytes());
    assert_eq!((done.out.as_str(), done.code), (ANSWER.repeat(2).as_str(), Some(1)), "a command failed: {done:?}");
    assert!(done.err.contains("no command /nosuch") && done.err.contains("/clear"), "{done:?}");
    assert_eq!(done.err.matches(THOUGHT).count(), 1, "{done:?}");
    assert_eq!(figures(&done.err).len(), 2);
    assert_eq!(done.err.matches("4096 tokens of context").count(), 1);
}

#[test]
fn extended_a_conversation_survives_a_full_context() {
    let long = "fox ".repeat(60);
    let done = try_chat("--temp 0 -c 40", format!("{long}\n{QUESTION}").as_bytes());
    assert_eq!((done.out.as_str(), done.code), (ANSWER, Some(1)), "{done:?}");
    assert!(done.err.contains("error: the context is full"), "{done:?}");
    assert_eq!(done.err.matches("hint: ").count(), 1, "one remedy: {done:?}");
    assert!(done.err.contains("note: the previous message got no answer and was dropped"), "{done:?}");
    let cut = try_chat("--temp 0 -n 3", QUESTION.as_bytes());
    assert!(cut.code == Some(3) && cut.err.contains("no answer"), "{cut:?}");
    let full = try_chat("--temp 0 -c 20", QUESTION.as_bytes());
    assert!(
        full.code == Some(0) && full.err.contains("the oldest messages will be dropped; /clear starts over"),
        "{full:?}"
    );
}

#[test]
fn extended_the_oldest_messages_are_dropped() {
    let input = format!("/system Hello.\n{}", format!("{QUESTION}\n").repeat(4));
    let (said, done) = contents("--temp 0 --reasoning off -c 60", input.as_bytes());
    assert_eq!(done.out.lines().count(), 4, "{done:?}");
    assert!(done.code == Some(0) && done.err.contains("the model no longer sees the oldest 2 messages"), "{done:?}");
    assert!(said[0] == "Hello." && said[1] == QUESTION && said.len() < 9, "{said:?}");
}

/// An unanswered message that comes from a file is not dropped.
#[test]
fn extended_loaded_messages_stay() {
    let dir = TempDir::new().unwrap();
    let call = r#"{"function": {"name": "sum", "arguments": {"a": 7, "b": 5}}}"#;
    let messages = format!(
        r#"[{{"role": "user", "content": "Add."}}, {{"role": "assistant", "content": "", "tool_calls": [{call}]}},
            {{"role": "tool", "content": "12"}}]"#
    );
    for (messages, kept) in
        [(messages.as_str(), vec!["Add.", "", "12"]), (r#"[{"role": "user", "content": "A."}]"#, vec!["A."])]
    {
        let file = written(&dir, "loaded.json", messages.as_bytes());
        let (said, done) = contents("--reasoning off -n 1", format!("/load {}\nhi", file.display()).as_bytes());
        assert_eq!(said[..said.len() - 1], [&kept[..], &["hi"]].concat(), "{done:?}");
        assert!(!done.err.contains("dropped"), "{done:?}");
    }
}

#[test]
fn an_empty_answer_is_not_copied() {
    let file = r#"[{"role": "user", "content": "A."}, {"role": "assistant", "content": ""}]"#;
    let dir = TempDir::new().unwrap();
    let file = written(&dir, "empty.json", file.as_bytes());
    let done = try_chat("", format!("/load {}\n/copy", file.display()).as_bytes());
    assert!(done.code == Some(1) && done.err.contains("there is no answer yet"), "{done:?}");
}

/// The contents of the messages that a conversation with these lines saves.
fn contents(rest: &str, input: &[u8]) -> (Vec<String>, CommandResult) {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("saved.json");
    let end = format!("\n/save {}", file.display());
    let done = try_chat(rest, &[input, end.as_bytes()].concat());
    let messages = json(&std::fs::read_to_string(file).unwrap());
    (messages.as_array().unwrap().iter().map(|m| m["content"].as_str().unwrap().to_owned()).collect(), done)
}

#[test]
fn extended_lines_become_messages_unchanged() {
    let input = "\u{feff}hi\r\n//help\r\none \\\r\ntwo\n\"\"\"\n /clear\n\nend\\\n\"\"\"\n";
    let rest = b"\"\"\"gr\xfc\xdf\nmore\"\"\"\n    indented \n   \n /help \n";
    let (said, done) = contents("--reasoning off -n 2", &[input.as_bytes(), rest].concat());
    let asked: Vec<&str> = said.iter().step_by(2).map(String::as_str).collect();
    // Blanks stay and texts that are not UTF-8 are refused, as in `run`.
    assert_eq!(asked, ["hi", "/help", "one \ntwo", " /clear\n\nend\\", "    indented "]);
    let told = "error: stdin, line 10: invalid UTF-8 at byte 5; the message is not sent";
    assert!(done.code == Some(1) && done.err.contains(told) && done.err.contains("/regen"), "{done:?}");
}

#[test]
fn extended_quotes_that_stay_open_end_with_the_input() {
    let done = chat("--temp 0 -q", &["\"\"\"", QUESTION]);
    assert_eq!((done.out.as_str(), done.err.as_str()), (ANSWER, ""));
}

#[test]
fn extended_a_conversation_is_saved_and_loaded() {
    let dir = TempDir::new().unwrap();
    let [file, copy] = ["one.json", "two.json"].map(|name| dir.path().join(name).display().to_string());
    let first = chat("--temp 0 -sys Hello.", &["My name is Clara.", QUESTION, &format!("/save {file}")]);
    assert!(first.err.contains("5 messages saved to"), "{first:?}");
    let quoted = dir.path().join("a b.json").display().to_string();
    let again = chat("--temp 0", &[&format!("/load {file}"), &format!("/save \"{quoted}\"")]);
    assert!(again.err.contains(&format!("5 messages saved to {quoted}")), "{again:?}");
    assert_eq!(std::fs::read(&quoted).unwrap(), std::fs::read(&file).unwrap());
    let saved = json(&std::fs::read_to_string(&file).unwrap());
    assert_eq!(saved[4]["reasoning_content"], THOUGHT);
    let lines = [&format!("/load {file}"), "/reasoning off", "What is my name?", &format!("/save {copy}")];
    let second = chat("--temp 0", &lines);
    assert!(second.err.contains("5 messages: "), "{second:?}");
    let longer = json(&std::fs::read_to_string(&copy).unwrap());
    assert_eq!(longer.as_array().unwrap()[..5], saved.as_array().unwrap()[..]);
    let rendered = succeed(&format!("template --messages {copy}")).out;
    assert!(rendered.starts_with("[gMASK]<sop><|system|>Hello.<|user|>My name is Clara.<|assistant|>"), "{rendered}");
}

#[test]
fn extended_files_that_are_not_conversations_are_not_overwritten() {
    let dir = TempDir::new().unwrap();
    let file = written(&dir, "notes.txt", b"to do").display().to_string();
    let bad = written(&dir, "bad.json", br#"[{"role": "nobody"}]"#).display().to_string();
    for (line, words) in [
        (format!("/save {file}"), "not overwriting "),
        (format!("/load {file}"), "expected a JSON array of messages"),
        (format!("/load {bad}"), "bad.json"),
        ("/load nowhere.json".into(), "cannot read nowhere.json"),
        ("/copy".into(), "there is no terminal"),
    ] {
        let done = try_chat("--temp 0", format!("{QUESTION}\n{line}\n{QUESTION}").as_bytes());
        assert!(done.code == Some(1) && done.err.contains(words), "{line}: {done:?}");
        assert_eq!(done.out.lines().count(), 2, "the conversation goes on: {done:?}");
    }
    assert_eq!(std::fs::read(file).unwrap(), b"to do");
}

#[test]
fn extended_a_message_is_answered_again() {
    let ask = "Tell me a story about a fox.";
    let (said, done) = contents("--reasoning off -n 12 --seed 3", format!("{ask}\n/regen").as_bytes());
    let answers: Vec<&str> = done.out.lines().collect();
    assert!(answers.len() == 2 && answers[0] != answers[1], "{done:?}");
    assert_eq!(said, [ask, answers[1]]);
    let none = try_chat("", b"/regen");
    assert!(none.code == Some(1) && none.err.contains("no message yet"), "{none:?}");
}

#[test]
fn extended_the_system_message_can_be_changed() {
    let input = "/system One.\nhi\n/system Two words.\n/clear\nhello";
    assert_eq!(contents("--reasoning off -n 1", input.as_bytes()).0[..2], ["Two words.", "hello"]);
    assert_eq!(contents("--reasoning off -n 1 -sys One.", b"/system\nhi").0[0], "hi");
}

#[test]
fn extended_quiet_shows_only_answers() {
    let done = chat("--temp 0 --quiet", &[QUESTION, QUESTION]);
    assert_eq!((done.out.lines().next().unwrap(), done.err.as_str()), (ANSWER.trim_end(), ""));
}
