//! Tests the command on a terminal: typing, drawing, and the state that it leaves behind.

use super::{ANSWER, QUESTION, command, with_full_disk, with_shell};
use crate::common::gguf_writer::GgufWriter;
use crate::common::gpu::gpu;
use nix::sys::termios::{LocalFlags, tcgetattr};
use rexpect::process::{Signal, WaitStatus};
use rexpect::session::{PtySession, spawn_command};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// The time limit for a step on a busy machine.
const PATIENCE: Option<u64> = Some(120_000);

/// The end of the editor's line before anything is typed.
const PROMPT: &str = "> \r\x1b[2C";

fn on_terminal(mut command: Command) -> PtySession {
    command.stdin(Stdio::inherit());
    if command.get_envs().all(|(name, _)| name != "TERM") {
        command.env("TERM", "xterm");
    }
    spawn_command(command, PATIENCE).unwrap()
}

/// A conversation at its first prompt.
fn chat(line: &str) -> PtySession {
    let mut command = command(["chat", "--temp", "0"]);
    command.args(line.split_whitespace());
    at_prompt(command)
}

fn at_prompt(command: Command) -> PtySession {
    let mut session = on_terminal(command);
    session.exp_string("/help for help").unwrap();
    session.exp_string(PROMPT).unwrap();
    session
}

fn type_in(session: &mut PtySession, text: &str) {
    session.send(text).unwrap();
    session.flush().unwrap();
}

/// The text of a terminal, which `rexpect` reads byte by byte.
fn text(drawn: &str) -> String {
    String::from_utf8(drawn.chars().map(|byte| u8::try_from(u32::from(byte)).unwrap()).collect()).unwrap()
}

/// The rest of the output, and the exit status.
fn ended(mut session: PtySession) -> (String, i32) {
    let rest = text(&session.exp_eof().unwrap());
    match session.process().wait().unwrap() {
        WaitStatus::Exited(_, code) => (rest, code),
        other => panic!("{other:?}: {rest}"),
    }
}

/// Whether the terminal is in line mode, and not in the editor's mode of single characters.
fn reads_lines(session: &PtySession) -> bool {
    let terminal = session.process().get_file_handle().unwrap();
    tcgetattr(terminal).unwrap().local_flags.contains(LocalFlags::ICANON)
}

#[test]
fn extended_signals_leave_the_terminal_as_it_was() {
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let mut session = chat("");
        assert!(!reads_lines(&session));
        session.process_mut().signal(signal).unwrap();
        let rest = session.exp_eof().unwrap();
        assert!(rest.contains("\x1b[?2004l"), "{rest:?}");
        assert!(reads_lines(&session), "{signal}");
        assert!(matches!(session.process().wait(), Ok(WaitStatus::Exited(_, found)) if found == code));
    }
}

/// The shader cache is empty, so shaders take seconds to compile.
#[test]
fn extended_an_interrupt_ends_a_load() {
    // A GPU that is not a software driver has loaded the model by then.
    let later = if gpu().report().is_software() { &[("chat", 1500), ("run hi", 1500)][..] } else { &[] };
    for &(line, pause) in [("chat", 0), ("run hi", 0)].iter().chain(later) {
        let mut command = command(line.split(' '));
        command.env("MESA_SHADER_CACHE_DISABLE", "true");
        let mut session = on_terminal(command);
        session.exp_string("loading").unwrap();
        std::thread::sleep(Duration::from_millis(pause));
        session.send_control('c').unwrap();
        let (rest, code) = ended(session);
        assert_eq!(code, 130, "{line}: {rest:?}");
        assert!(!rest.contains("[prompt:") && !rest.contains(PROMPT), "{line}: {rest:?}");
    }
}

#[test]
fn extended_an_interrupt_at_the_prompt_drops_the_line() {
    let mut session = chat("");
    for typed in ["/exit", "/exit now"] {
        type_in(&mut session, typed);
        session.exp_string(typed).unwrap();
        session.send_control('c').unwrap();
        session.exp_string(PROMPT).unwrap();
    }
    session.send_control('c').unwrap();
    session.exp_string("(press Ctrl-C again or Ctrl-D to quit)").unwrap();
    session.exp_string(PROMPT).unwrap();
    session.send_control('c').unwrap();
    assert_eq!(ended(session).1, 130);
    let mut session = chat("");
    session.send_control('d').unwrap();
    assert_eq!(ended(session).1, 0);
}

#[test]
fn extended_an_interrupt_stops_only_the_reply() {
    let mut session = chat("--reasoning off");
    type_in(&mut session, "Tell me a story about an owl.\r");
    session.exp_string("Once upon").unwrap();
    session.send_control('c').unwrap();
    session.exp_string(", stopped").unwrap();
    session.exp_string(PROMPT).unwrap();
    type_in(&mut session, "/exit\r");
    assert_eq!(ended(session).1, 0);
}

#[test]
fn extended_only_answers_go_to_a_pipe() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("log");
    let plain = command(["chat"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{} chat --temp 0 > {}", env!("CARGO_BIN_EXE_wglm"), file.display())]);
    shell.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut session = on_terminal(shell);
    session.exp_string(PROMPT).unwrap();
    type_in(&mut session, &format!("{QUESTION}\r"));
    session.exp_string("reply: 15 tokens").unwrap();
    session.exp_string(PROMPT).unwrap();
    type_in(&mut session, "/exit\r");
    assert_eq!(ended(session).1, 0);
    assert_eq!(std::fs::read_to_string(file).unwrap(), ANSWER);
}

#[test]
fn extended_the_next_conversation_has_the_history() {
    let dir = TempDir::new().unwrap();
    let again = |option: Option<&str>| {
        let mut command = command(["chat", "--temp", "0"]);
        command.args(option).env_remove("WGLM_NO_HISTORY").env("XDG_STATE_HOME", dir.path()).env("HOME", dir.path());
        at_prompt(command)
    };
    let mut session = again(Some("--no-history"));
    type_in(&mut session, "/reasoning on\r/exit\r");
    assert_eq!(ended(session).1, 0);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let mut session = again(None);
    // The lines are typed without waiting: text that is typed ahead is not lost.
    type_in(&mut session, "/reasoning off\r two\\\rlines\r");
    session.exp_string("reply:").unwrap();
    session.exp_string(PROMPT).unwrap();
    session.send_control('d').unwrap();
    assert_eq!(ended(session).1, 0);
    let mut session = again(None);
    type_in(&mut session, "\x1b[A");
    session.exp_string("/reasoning off").unwrap();
    type_in(&mut session, "\r/exit\r");
    assert_eq!(ended(session).1, 0);
    if cfg!(target_os = "linux") {
        let file = std::fs::File::open(dir.path().join("wglm/history")).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn extended_messages_have_several_lines() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("saved.json");
    let mut session = chat("--reasoning off -n 1");
    for typed in ["one\\\rtwo", "\"\"\"\ra\r\r b\\\r\"\"\"", "\x1b[200~cp a \\\n  b\x1b[201~", "three\x1b\rfour"] {
        type_in(&mut session, &format!("{typed}\r"));
        session.exp_string("reply:").unwrap();
        session.exp_string(PROMPT).unwrap();
    }
    type_in(&mut session, &format!("/save {}\r/exit\r", file.display()));
    assert_eq!(ended(session).1, 0);
    let messages = super::json(&std::fs::read_to_string(file).unwrap());
    let said: Vec<&str> =
        messages.as_array().unwrap().iter().step_by(2).map(|m| m["content"].as_str().unwrap()).collect();
    assert_eq!(said, ["one\ntwo", "a\n\n b\\", "cp a \\\n  b", "three\nfour"]);
}

/// On a line that continues a message, Ctrl-C drops the message, and Ctrl-D sends it.
#[test]
fn extended_a_message_of_several_lines_is_dropped_or_sent() {
    let mut session = chat("--reasoning off");
    for _ in 0..2 {
        type_in(&mut session, "\"\"\"\r");
        session.exp_string(". \r").unwrap();
        session.send_control('c').unwrap();
        session.exp_string(PROMPT).unwrap();
    }
    type_in(&mut session, &format!("{QUESTION}\\\r"));
    session.exp_string(". \r").unwrap();
    session.send_control('d').unwrap();
    session.exp_string(ANSWER.trim_end()).unwrap();
    session.exp_string(PROMPT).unwrap();
    session.send_control('d').unwrap();
    assert_eq!(ended(session).1, 0);
}

#[test]
fn extended_tab_completes_commands_and_files() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("nothing.json"), "[]").unwrap();
    std::fs::write(dir.path().join("two words.json"), "{}").unwrap();
    let mut command = command(["chat"]);
    command.current_dir(dir.path()).env("HOME", dir.path());
    let mut session = at_prompt(command);
    type_in(&mut session, "/hel\t\r");
    session.exp_string("//TEXT sends /TEXT").unwrap();
    session.exp_string(PROMPT).unwrap();
    type_in(&mut session, "/load noth\t\r");
    session.exp_string("nothing.json").unwrap();
    session.exp_string(PROMPT).unwrap();
    for typed in ["/load two\t\r", "/load two w\t\r", "/load ~/two words.json\r"] {
        type_in(&mut session, typed);
        session.exp_string("words.json: expected a JSON array").unwrap();
        session.exp_string(PROMPT).unwrap();
    }
    session.send_control('d').unwrap();
    ended(session);
}

/// Lines of an answer are broken between words at the width of the terminal, even after the window becomes narrower; a
/// pipe gets the model's own lines.
#[test]
fn extended_lines_break_between_words() {
    let mut plain = command(["chat", "--temp", "0", "--reasoning", "off", "-n", "60"]);
    plain.env("TERM", "xterm");
    let mut session = on_terminal(with_shell(plain, "stty rows 24 cols 32"));
    for width in [32, 24] {
        session.exp_string(PROMPT).unwrap();
        if width != 32 {
            let terminal = session.process().get_file_handle().unwrap();
            let resized = Command::new("stty").args(["cols", "24"]).stdin(terminal).status().unwrap();
            assert!(resized.success());
            type_in(&mut session, "/clear\r"); // to get the same story
            session.exp_string(PROMPT).unwrap();
        }
        type_in(&mut session, "Tell me a story about an owl.\r");
        session.exp_string("Once upon").unwrap();
        let rest = text(&session.exp_string("\r\n\x1b[2m[prompt").unwrap());
        let story = format!("Once upon{rest}");
        let lines: Vec<&str> = story.split("\r\n").collect();
        assert!(lines.len() > 5 && lines.iter().all(|line| line.len() <= width), "{width}: {story:?}");
        let words = story.replace("\r\n", " ").split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.starts_with("Once upon a time there was a shy owl named Xavier. One morning Xavier"),
            "{story:?}"
        );
    }
    session.exp_string(PROMPT).unwrap();
    type_in(&mut session, "/help\r");
    let help = text(&session.exp_string(PROMPT).unwrap());
    assert!(help.contains("list commands") && help.contains("/save FILE"), "{help:?}");
    let lines: Vec<&str> = help.split("\r\n").skip(1).collect();
    assert!(lines.iter().all(|line| line.len() <= 24 || line.contains('\x1b')), "{lines:?}");
    type_in(&mut session, "/exit\r");
    assert_eq!(ended(session).1, 0);
}

/// A full disk keeps the typed message out of the history, and loses no earlier message.
#[test]
fn extended_a_full_disk_leaves_the_history() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("wglm/history");
    std::fs::create_dir(dir.path().join("wglm")).unwrap();
    std::fs::write(&file, "#V2\nbefore\n").unwrap();
    let mut plain = command(["chat", "--temp", "0"]);
    plain.env_remove("WGLM_NO_HISTORY").env("XDG_STATE_HOME", dir.path()).env("HOME", dir.path());
    let mut session = at_prompt(with_full_disk(plain));
    type_in(&mut session, "/reasoning off\r");
    let file = if cfg!(target_os = "linux") { file } else { return };
    session.exp_string("note: typed messages are not saved in ").unwrap();
    session.exp_string(PROMPT).unwrap();
    type_in(&mut session, "/exit\r");
    assert_eq!(ended(session).1, 0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "#V2\nbefore\n");
    assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
}

/// The program that `nohup` starts does not end with its terminal.
#[test]
fn a_hangup_that_was_ignored_stays_ignored() {
    let mut session = at_prompt(with_shell(command(["chat", "--temp", "0"]), "trap '' HUP"));
    session.process_mut().signal(Signal::SIGHUP).unwrap();
    type_in(&mut session, "/nosuch\r");
    session.exp_string("no command /nosuch").unwrap();
    session.exp_string(PROMPT).unwrap();
    type_in(&mut session, "/exit\r");
    assert_eq!(ended(session).1, 0);
}

#[cfg(not(target_os = "macos"))] // which uses a program instead
#[test]
fn extended_the_terminal_is_asked_to_copy() {
    let mut session = chat("");
    type_in(&mut session, &format!("{QUESTION}\r"));
    session.exp_string("reply:").unwrap();
    session.exp_string(PROMPT).unwrap();
    type_in(&mut session, "/copy\r");
    session.exp_string("\x1b]52;c;U2V2ZW4gcGx1cyBmaXZlIGlzIHR3ZWx2ZS4=\x07").unwrap();
    session.exp_string("26 characters sent to the terminal for its clipboard; not every terminal").unwrap();
    type_in(&mut session, "/exit\r");
    assert_eq!(ended(session).1, 0);
}

/// The clipboard is reached through the terminal at which the user types, even if stderr is redirected.
#[cfg(not(target_os = "macos"))]
#[test]
fn extended_the_terminal_is_asked_to_copy_if_stderr_is_redirected() {
    let plain = command(["chat"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{} chat --temp 0 2> /dev/null", env!("CARGO_BIN_EXE_wglm"))]);
    shell.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut session = on_terminal(shell);
    session.exp_string(PROMPT).unwrap();
    type_in(&mut session, &format!("{QUESTION}\r"));
    session.exp_string(ANSWER.trim_end()).unwrap();
    session.exp_string(PROMPT).unwrap();
    type_in(&mut session, "/copy\r");
    session.exp_string("\x1b]52;c;U2V2ZW4gcGx1cyBmaXZlIGlzIHR3ZWx2ZS4=\x07").unwrap();
    type_in(&mut session, "/exit\r");
    assert_eq!(ended(session).1, 0);
}

#[test]
fn extended_a_dumb_terminal_gets_no_escape_sequences() {
    let mut plain = command(["run", "--temp", "0", QUESTION]);
    plain.env("TERM", "dumb");
    let (drawn, code) = ended(on_terminal(plain));
    assert!(code == 0 && !drawn.contains('\x1b') && drawn.contains("[thinking]"), "{drawn:?}");
    let mut plain = command(["chat", "--temp", "0"]);
    plain.env("TERM", "dumb");
    let mut session = on_terminal(plain);
    let mut drawn = session.exp_string("\r\n> ").unwrap();
    type_in(&mut session, &format!("{QUESTION}\n"));
    drawn += &session.exp_string("\r\n> ").unwrap();
    type_in(&mut session, "/nosuch\n");
    drawn += &session.exp_string("\r\n> ").unwrap();
    session.send_control('d').unwrap();
    let (rest, code) = ended(session);
    drawn += &rest;
    assert!(code == 0 && !drawn.contains('\x1b') && drawn.contains(ANSWER.trim_end()), "{drawn:?}");
}

#[test]
fn extended_colour_or_words_mark_the_thinking() {
    let run = |colour: bool| {
        let mut command = command(["run", "--temp", "0", QUESTION]);
        if !colour {
            command.env("NO_COLOR", "1");
        }
        ended(on_terminal(command)).0
    };
    let (plain, coloured) = (run(false), run(true));
    assert!(
        plain.contains("[thinking]") && plain.contains("[end of thinking]") && !plain.contains("\x1b[2m"),
        "{plain:?}"
    );
    assert!(!coloured.contains("[thinking]") && coloured.contains("\x1b[2m"), "{coloured:?}");
}

/// Commands that measure show their progress, k of n, and remove it at the end.
#[test]
fn extended_measurements_show_their_progress() {
    for (line, doing, whole) in [
        ("bench -p 2 -n 0 -r 1", "pp2: warmup", "0/1"),
        ("profile -r 2", "timing every kind of step", "0/2"),
        ("selftest -k sum_normed", "testing kernels", "0/1"),
    ] {
        let (drawn, code) = ended(on_terminal(command(line.split_whitespace())));
        assert_eq!(code, 0, "{line}: {drawn}");
        let after = drawn.split_once(doing).unwrap_or_else(|| panic!("{line}: {drawn:?}")).1;
        assert!(after.contains(whole), "{line}: {drawn:?}");
        let last = after.rsplit("\x1b[2K").next().unwrap();
        assert!(!last.contains(whole) && after.contains("\x1b[2K"), "{line}: {drawn:?}");
        let piped = super::succeed(line);
        assert!(!piped.err.contains(doing), "{piped:?}");
    }
}

/// A file of this name, one of whose keys would rename the window, and whose template clears the screen.
fn hostile(dir: &TempDir) -> String {
    let template = "{{ raise_exception('no \u{1b}[2J\u{9b}31m\u{202e}!') }}";
    let writer = GgufWriter::new().meta("evil\u{1b}]0;owned\u{7}", "text").meta("tokenizer.chat_template", template);
    super::written(dir, "hostile.gguf", &writer.finish()).to_str().unwrap().to_owned()
}

/// A terminal shows control characters of a file instead of obeying them; a pipe gets them unchanged.
#[test]
fn strings_of_a_file_are_shown() {
    let dir = TempDir::new().unwrap();
    let file = hostile(&dir);
    let messages = super::written(&dir, "messages.json", br#"[{"role": "user", "content": "hi"}]"#);
    let template = ["template", "-m", &file, "--messages", messages.to_str().unwrap()];
    for (args, shown, raw) in [
        (&["inspect", &file][..], "evil␛]0;owned␇ = ", "evil\u{1b}]0;owned\u{7} = "),
        (&template, "no ␛[2J\\u{9b}31m\\u{202e}!", "no \u{1b}[2J\u{9b}31m\u{202e}!"),
    ] {
        let (drawn, code) = ended(on_terminal(command(args)));
        assert!(code == 1 && drawn.contains(shown), "{args:?}: {drawn:?}");
        assert!(!drawn.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}']), "{args:?}: {drawn:?}");
        let piped = super::outcome(command(args));
        assert!(format!("{}{}", piped.out, piped.err).contains(raw), "{args:?}: {piped:?}");
    }
}

/// The same for a model's answers and thinking.
#[test]
fn extended_generated_text_is_shown() {
    let escape = super::json(&super::outcome(command(["tokenize", "--json", "\u{1b}"])).out)[0].as_u64().unwrap();
    for (reasoning, raw) in [("off", "\u{1b}\u{1b}\u{1b}\n"), ("on", "")] {
        let args = ["run", "--temp", "0", "-n", "3", "--reasoning", reasoning, "-l", &format!("{escape}+1000"), "hi"];
        let (drawn, _) = ended(on_terminal(command(args)));
        let shown = drawn.replace("\u{1b}[2m", "").replace("\u{1b}[0m", "");
        assert!(shown.contains("␛␛␛") && !drawn.contains("\u{1b}\u{1b}"), "{drawn:?}");
        assert_eq!(super::outcome(command(args)).out, raw);
    }
}

/// The same for arguments, which an error repeats. `clap` removes escape sequences from messages about wrong usage.
#[test]
fn arguments_are_shown() {
    let hostile = "no\u{1b}[2Jsuch\u{202e}";
    for (args, shown) in [
        (&["run", &format!("--{hostile}")][..], "--nosuch\\u{202e}"),
        (&["man", hostile], "nosuch\\u{202e}"),
        (&["inspect", hostile], "no␛[2Jsuch\\u{202e}"),
    ] {
        let (drawn, code) = ended(on_terminal(command(args)));
        assert!(code != 0 && drawn.contains(shown), "{args:?}: {drawn:?}");
        assert!(!drawn.contains(['\u{1b}', '\u{202e}']), "{args:?}: {drawn:?}");
    }
}

/// A list of models fits the width of a terminal: it shows the end of a long name, and the reason below it.
#[test]
fn a_list_of_models_fits() {
    let home = TempDir::new().unwrap();
    let folder =
        home.path().join(".lmstudio/models/somebody-with-a-long-name/GLM-4.7-Flash-with-a-longer-name-still-GGUF");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("model-UD-Q4_K_XL.gguf"), "<html></html>").unwrap();
    let mut command = command(["models"]);
    for name in ["HF_HOME", "LLAMA_CACHE", "OLLAMA_MODELS"] {
        command.env_remove(name);
    }
    command.env("HOME", home.path()).env("HF_HUB_CACHE", home.path().join("hub"));
    let (drawn, code) = ended(on_terminal(command));
    let lines: Vec<&str> = drawn.lines().map(str::trim_end).filter(|line| !line.contains("-m takes")).collect();
    assert!(code == 0 && lines.iter().all(|line| line.chars().count() <= 120), "{drawn:?}");
    let at = lines.iter().position(|line| line.contains("UD-Q4_K_XL")).unwrap();
    assert!(lines[at].contains("…") && lines[at].chars().count() <= 80, "{drawn:?}");
    assert!(lines[at + 1].starts_with("    not a GGUF file") && lines[at + 1].chars().count() <= 80, "{drawn:?}");
}

/// If stdin is read before a conversation, the terminal asks for the text, and names the key that ends it.
#[test]
fn extended_a_schema_is_typed() {
    let mut session = on_terminal(command(["chat", "--temp", "0", "--reasoning", "off", "-j", "-"]));
    session.exp_string("reading stdin from the terminal; Ctrl-D at the beginning of a line ends it").unwrap();
    type_in(&mut session, "{\"type\": \"boolean\"}\n\u{4}");
    session.exp_string(PROMPT).unwrap();
    type_in(&mut session, "Is it so?\r");
    session.exp_regex("true|false").unwrap();
    session.exp_string(PROMPT).unwrap();
    type_in(&mut session, "\u{4}");
    assert_eq!(ended(session).1, 0);
}

/// On a terminal a deletion needs a confirmation, which lists what would be deleted; only yes deletes.
#[test]
fn a_deletion_is_confirmed() {
    let home = TempDir::new().unwrap();
    let root = home.path().join("models--owner--some-GGUF");
    let (blob, snapshot) = (root.join("blobs").join("ab".repeat(32)), root.join("snapshots/c0ffee"));
    std::fs::create_dir_all(root.join("blobs")).unwrap();
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::write(&blob, vec![0; 3 << 20]).unwrap();
    std::os::unix::fs::symlink(&blob, snapshot.join("some-Q4_0.gguf")).unwrap();
    for (answer, status) in [("\r", 1), ("no\r", 1), ("yes\r", 0)] {
        let mut command = command(["models", "rm", "owner/some-GGUF"]);
        command.env("HF_HUB_CACHE", home.path());
        let mut session = on_terminal(command);
        let asked = text(&session.exp_string("Delete? [y/N] ").unwrap());
        assert!(
            asked.contains("owner/some-GGUF:Q4_0 and frees 3.0 MiB") && asked.contains("some-Q4_0.gguf"),
            "{asked}"
        );
        type_in(&mut session, answer);
        let (said, code) = ended(session);
        assert_eq!((code, blob.exists()), (status, status != 0), "{said}");
        assert!(said.contains(if status == 0 { "and freed 3.0 MiB" } else { "nothing was deleted" }), "{said}");
    }
    assert!(!root.exists());
}
