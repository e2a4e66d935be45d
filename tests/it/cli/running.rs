//! Tests the command `run`.

use super::{
    ANSWER, QUESTION, THOUGHT, command, fed, figures, json, outcome, refused, refuses, run_prompt, succeed, try_prompt,
    wglm, written,
};
use crate::common::models::{fable_file, fixture};
use crate::hostile_models::small::Small;
use tempfile::TempDir;

#[test]
fn extended_stdout_has_only_the_answer() {
    let dir = TempDir::new().unwrap();
    let file = written(&dir, "prompt.txt", format!("{QUESTION}\n").as_bytes()).display().to_string();
    let outcomes = [
        outcome(command(["run", "-p", QUESTION, "--temp", "0"])),
        outcome(command(["run", "--temp", "0", "-f", &file, "--no-subgroups", "-n", "-1", "-c", "0"])),
        fed(command(["run", "--temp", "0", "-"]), QUESTION.as_bytes()),
        fed(command(["run", "--temp", "0", "-p", "-"]), format!("{QUESTION}\n").as_bytes()),
        outcome(command(["run", "--temp", "0", QUESTION, "-m", &fable_file("f16").display().to_string()])),
    ];
    for done in &outcomes {
        assert_eq!((done.code, done.out.as_str()), (Some(0), ANSWER), "{done:?}");
        assert!(done.err.contains(THOUGHT) && !done.err.contains(ANSWER.trim_end()), "{done:?}");
        assert!(!done.err.contains('\x1b') && !done.err.contains("loading"), "{done:?}");
        assert_eq!(figures(&done.err), [[0, 11, 15]], "{done:?}");
    }
}

#[test]
fn extended_without_reasoning_and_without_template() {
    let quiet = run_prompt("Tell me a story about an owl.", "--reasoning off --temp 0");
    let story = "Once upon a time there was a shy owl named Xavier. One morning Xavier found a golden key near a tall \
                 tower.";
    assert!(quiet.out.starts_with(story) && quiet.out.ends_with("it is good to ask for help.\n"), "{quiet:?}");
    assert!(quiet.err.starts_with("[prompt: 0 cached, 13 new"), "{quiet:?}");
    let raw = run_prompt(&format!("[gMASK]<sop><|user|>{QUESTION}<|assistant|></think>"), "--raw --temp 0");
    assert_eq!(raw.out, ANSWER);
    assert_eq!(figures(&raw.err)[0][..2], [0, 11]);
    let system = outcome(command(["run", "-p", "hi", "-sys", "Be brief.", "-n", "1"]));
    assert!(figures(&system.err)[0][1] > figures(&try_prompt("hi", "-n 1").err)[0][1], "{system:?}");
}

#[test]
fn long_the_same_seed_makes_the_same_text() {
    let story = |rest: &str| run_prompt("Tell me a story about a fox.", &format!("--reasoning off -n 16 {rest}")).out;
    let stories = ["-s 1", "--seed 2", "-s 3"].map(story);
    assert_eq!(stories[0], story("--seed 1"));
    assert!(stories.iter().any(|other| *other != stories[0]), "{stories:?}");
    assert_eq!(story("--seed 5 --temp 0"), story("--seed 6 --top-k 1"));
}

#[test]
fn long_penalties_and_bias_change_the_text() {
    let story =
        |rest: &str| run_prompt("Tell me a story about a fox.", &format!("--reasoning off -n 24 --temp 0 {rest}")).out;
    let penalties = ["--repeat-penalty 1.5", "--presence-penalty 5", "--frequency-penalty -3"];
    let plain = story("");
    assert_eq!(story(&format!("{} --repeat-last-n 0", penalties.join(" "))), plain, "over no tokens");
    for rest in penalties {
        assert_ne!(story(&format!("{rest} --repeat-last-n -1")), plain, "{rest}");
    }
    let ids: Vec<u32> = serde_json::from_str(&succeed("tokenize --ids Seven").out).unwrap();
    let other = run_prompt(QUESTION, &format!("--reasoning off --temp 0 -n 5 -l {}-inf -l 1+0.5", ids[0])).out;
    assert!(!ANSWER.starts_with(other.trim_end()), "{other}");
    refuses("run -p hi -l 999999+1", "token 999999 is outside the vocabulary");
}

#[test]
fn extended_a_reply_ends_before_a_stop_string() {
    for (rest, out) in [("-r is", "Seven plus five \n"), ("--stop plus --reverse-prompt n", "Seve\n"), ("-r 7", ANSWER)]
    {
        let done = run_prompt(QUESTION, &format!("--temp 0 {rest}"));
        assert_eq!(done.out, out, "{rest}: {done:?}");
        assert_eq!(done.err.contains("a stop string came up"), out != ANSWER, "{done:?}");
    }
    let nothing = try_prompt(QUESTION, "--temp 0 -r Seven");
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(3), ""), "{nothing:?}");
    assert!(nothing.err.contains(", the reply began with a stop string (-r): no answer"), "{nothing:?}");
}

#[test]
fn extended_replies_have_the_requested_length() {
    for (count, out, code) in [(1, "", 3), (9, "", 3), (10, "Seven\n", 0)] {
        let done = try_prompt(QUESTION, &format!("--temp 0 -n {count}"));
        assert_eq!((done.out.as_str(), done.code), (out, Some(code)), "{count}: {done:?}");
        assert_eq!(figures(&done.err), [[0, 11, count]], "{done:?}");
        assert_eq!(done.err.contains("the -n limit was reached while thinking: no answer"), code == 3, "{done:?}");
    }
    let full = run_prompt(QUESTION, "--temp 0 -c 20");
    assert!(full.err.contains("the context is full") && figures(&full.err)[0] == [0, 11, 10], "{full:?}");
    assert!(ANSWER.starts_with(full.out.trim_end()), "{full:?}");
}

#[test]
fn figures_have_their_own_line() {
    let done = try_prompt(QUESTION, "--temp 0 -n 3");
    assert!(done.err.lines().any(|line| line.starts_with("[prompt:")), "{done:?}");
}

#[test]
fn long_any_language() {
    for prompt in ["👋🏽 你好，世界\n\nGrüße, café\r\n\t", "  spaces  ", "--temp"] {
        let done = outcome(command(["run", "--reasoning", "off", "-n", "3", "-p", prompt]));
        assert_eq!(done.code, Some(0), "{prompt:?}: {done:?}");
    }
}

#[test]
fn extended_a_text_is_read_unchanged() {
    let dir = TempDir::new().unwrap();
    let text = format!("\u{feff}{QUESTION}\r\n");
    let file = written(&dir, "prompt.txt", text.as_bytes()).display().to_string();
    let from_file = outcome(command(["run", "--temp", "0", "-f", &file]));
    for done in [from_file, fed(command(["run", "--temp", "0", "-"]), text.as_bytes())] {
        assert_eq!((done.out.as_str(), figures(&done.err)), (ANSWER, vec![[0, 11, 15]]), "{done:?}");
    }
    let wide: Vec<u8> = "\u{feff}hi".encode_utf16().flat_map(u16::to_le_bytes).collect();
    refused("UTF-16", &fed(command(["run", "-"]), &wide), "expected text in UTF-8, but it seems to be UTF-16");
}

#[test]
fn parts_of_the_output_can_be_hidden() {
    let hidden = run_prompt(QUESTION, "--temp 0 --hide-thinking");
    assert!(hidden.out == ANSWER && hidden.err.starts_with("[prompt: 0 cached, 11 new"), "{hidden:?}");
    let quiet = run_prompt(QUESTION, "--temp 0 -q -c 8192"); // this context would cause a note
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), (ANSWER, ""));
    let nothing = try_prompt(QUESTION, "--temp 0 --quiet -n 3");
    let told = "no answer: the -n limit was reached while thinking\n";
    assert_eq!((nothing.code, nothing.out.as_str(), nothing.err.as_str()), (Some(3), "", told));
    refuses("run -q -p hi -c 1", "the context is full");
}

#[test]
fn thinking_is_marked_without_colour() {
    let done = run_prompt(QUESTION, "--temp 0");
    assert!(done.err.contains(&format!("[thinking]\n{THOUGHT}\n[end of thinking]\n")), "{done:?}");
    assert!(!run_prompt(QUESTION, "--temp 0 --reasoning off").err.contains("thinking"));
}

/// The fields of every object of `run --json`.
const FIELDS: [&str; 12] = [
    "text",
    "thinking",
    "tool_calls",
    "prompt",
    "generated",
    "seed",
    "stop",
    "prompt_seconds",
    "generate_seconds",
    "drafts",
    "error",
    "hint",
];

/// Programs that read numbers as doubles can repeat a reply; a seed that the user chose is printed unchanged.
#[test]
fn extended_seeds_survive_json() {
    for _ in 0..2 {
        let seed = json(&run_prompt("hi", "--reasoning off --json -n 1").out)["seed"].as_u64().unwrap();
        assert!(seed < 1 << 53, "{seed}");
    }
    let own = json(&run_prompt("hi", &format!("--reasoning off --json -n 1 -s {}", u64::MAX)).out);
    assert_eq!(own["seed"], u64::MAX);
}

#[test]
fn extended_a_reply_as_json() {
    let done = run_prompt(QUESTION, "--temp 0 --json");
    let reply = json(&done.out);
    assert_eq!((reply["text"].as_str(), reply["thinking"].as_str()), (Some(ANSWER.trim_end()), Some(THOUGHT)));
    assert_eq!((&reply["stop"], &reply["tool_calls"], &reply["seed"]), (&"end".into(), &json("[]"), &json("null")));
    assert_eq!((&reply["prompt"]["new"], &reply["generated"]), (&11.into(), &15.into()), "{reply}");
    assert!(reply["prompt_seconds"].is_f64() && done.err.is_empty(), "{done:?}");
    let short = try_prompt(QUESTION, "--seed 7 --json -n 3");
    let reply = json(&short.out);
    assert_eq!((short.code, &reply["stop"], &reply["seed"]), (Some(3), &"length".into(), &7.into()), "{short:?}");
    let fields = |reply: &serde_json::Value| reply.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(fields(&reply), FIELDS);
    for (rest, error) in
        [("-c 1", "the context is full"), ("-m nosuch.gguf", "nosuch.gguf"), ("-f nosuch.txt", "nosuch.txt")]
    {
        let prompt: &[&str] = if rest.starts_with("-f") { &[] } else { &["-p", QUESTION] };
        let done = outcome(command(["run", "--json"].into_iter().chain(rest.split(' ')).chain(prompt.iter().copied())));
        let reply = json(&done.out);
        assert_eq!((done.code, fields(&reply)), (Some(1), FIELDS.map(str::to_owned).into()), "{done:?}");
        assert!(reply["error"].as_str().unwrap().contains(error) && reply["stop"].is_null(), "{done:?}");
    }
    let failed = try_prompt(QUESTION, "--json -c 1");
    assert_eq!(failed.code, Some(1));
    let reply = json(&failed.out);
    assert!(reply["error"].as_str().unwrap().contains("the context is full: 11 tokens"), "{failed:?}");
    assert!(
        reply["hint"].as_str().unwrap().contains("-c") && failed.err.starts_with("error: the context"),
        "{failed:?}"
    );
}

#[test]
fn prompts_that_are_refused() {
    refuses("run -p hi -c 1", "the context is full: 6 tokens needed, 1 available");
    assert!(!wglm("run -p hi -c 1").err.contains("start over"));
    let long = "fox ".repeat(5000);
    refused("long", &fed(command(["run", "-"]), long.as_bytes()), " available");
    refused("UTF-16", &fed(command(["run", "-"]), b"\xff\xfe"), "UTF-8");
    refused("binary", &fed(command(["run", "-"]), b"a\xff"), "cannot read stdin: invalid UTF-8 at byte 1");
    let large = wglm("run -p hi -c 999999999");
    refused("large", &large, "use a context of at most");
    assert!(large.err.contains("\nhint: try -c "), "{large:?}");
    refuses(
        "profile -p 65 -ub 64 -m nowhere.gguf",
        "-p: expected at most the prompt batch size of 64 tokens (-ub), found 65",
    );
    let silent = fixture("models/k-quants.gguf").display().to_string();
    for command in ["run -p", "tokenize"] {
        refuses(&format!("{command} hi -m {silent}"), &format!("error: {silent} has no tokenizer"));
    }
}

#[test]
fn an_empty_prompt_is_refused() {
    refused("stdin", &fed(command(["run", "-"]), b"\n"), "stdin: the prompt is empty");
    refuses("run -f /dev/null", "/dev/null: the prompt is empty");
    refused("blanks", &fed(command(["run", "-"]), b" \n\t\n"), "stdin: the prompt is empty");
    for prompt in ["", "  "] {
        let done = outcome(command(["run", "-p", prompt]));
        assert!(done.code == Some(2) && done.err.contains("error: the prompt is empty"), "{done:?}");
    }
}

#[test]
fn negative_numbers_are_values_of_options() {
    for flag in ["--temp -1", "--top-p -1", "-ub -1", "-c -1", "--seed -1", "--top-k -1"] {
        let done = wglm(&format!("run -p hi -n 1 {flag}"));
        assert!(!done.err.contains("'-- -1'"), "{flag}: {done:?}");
    }
}

#[test]
fn absurd_sizes_are_refused() {
    for size in [1u64 << 57, u64::MAX] {
        refuses(&format!("run -p hi -c {size}"), "context: expected 1 to 4294967295 tokens");
        refuses(&format!("plan -c {size}"), "context: expected 1 to 4294967295 tokens");
        succeed(&format!("plan --json -d {size}"));
    }
}

#[cfg(not(target_os = "macos"))]
#[test]
fn zero_copy_says_that_it_has_no_effect() {
    let done = run_prompt(QUESTION, "--temp 0 --zero-copy");
    assert_eq!(done.out, ANSWER);
    assert!(done.err.contains("--zero-copy has no effect"), "{done:?}");
}

/// A bias makes the model repeat one token forever.
#[test]
fn extended_loops_are_ended() {
    let dir = TempDir::new().unwrap();
    let model = written(&dir, "small.gguf", &Small::like_fable().file()).display().to_string();
    let ended = wglm(&format!("run -m {model} --raw --temp 0 -c 640 -l 300+1000 -n 530 -p hi --stop-loops"));
    assert!(ended.err.contains("repeated itself") && figures(&ended.err)[0][2] == 512, "{ended:?}");
}
