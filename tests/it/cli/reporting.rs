//! Tests the command `report`, especially what it saves when a stage fails.

use super::{CommandResult, command, json, outcome, succeed};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Runs the command in a folder that is the user's home.
fn report(folder: &Path, line: &str) -> CommandResult {
    let mut command = command(["report"].into_iter().chain(line.split_whitespace()));
    command.current_dir(folder).env("HOME", folder).env("USER", "jane").env_remove("LOGNAME");
    outcome(command)
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// The lines of the summary, which are on stdout and at the end of the file.
fn summary<'a>(done: &'a CommandResult, text: &str) -> Vec<&'a str> {
    assert!(text.ends_with(&format!("\n## Summary\n\n{}", done.out)), "{text}\n{done:?}");
    done.out.lines().collect()
}

/// The line of a stage on stderr.
fn told<'a>(done: &'a CommandResult, stage: &str) -> &'a str {
    let mut lines = done.err.lines().filter(|line| line.starts_with(&format!("{stage}: ")));
    let line = lines.next().unwrap_or_else(|| panic!("{stage}: {done:?}"));
    assert_eq!(lines.next(), None, "one line a stage: {done:?}");
    line
}

#[test]
fn extended_a_report_has_its_stages_and_a_summary() {
    let dir = TempDir::new().unwrap();
    let model = dir.path().join("jane's model.gguf");
    std::fs::write(&model, wglm::DEMO_MODEL).unwrap();
    let mut command =
        command(["report", "--only", "system,bandwidth,dispatches,answer,verdict", "--seconds", "0", "-m"]);
    command.arg(&model).current_dir(dir.path()).env("HOME", dir.path()).env("USER", "jane").env_remove("LOGNAME");
    let done = outcome(command);
    assert_eq!(done.code, Some(0), "{done:?}");
    let text = read(dir.path(), "wglm-report.txt");
    let lines = summary(&done, &text);
    let name =
        succeed("devices").out.lines().find_map(|line| line.strip_suffix(" (default)").map(str::to_owned)).unwrap();
    for words in [
        &format!("system: {name} ("),
        "bandwidth: ",
        " us per dispatch",
        "answer: right: \"Seven plus five is twelve.\"",
    ] {
        assert!(lines.iter().filter(|line| line.contains(words)).count() == 1, "{words}: {lines:?}");
    }
    let loaded = lines.iter().find(|line| line.starts_with("verdict: the demonstration model: loaded in ")).unwrap();
    assert!(loaded.contains("gives correct results"), "{loaded}");
    assert!(lines.iter().any(|line| line.contains("skipped for lack of time")), "{lines:?}");
    for words in ["max_buffer_size: ", "features: ", "SHADER_F16", "7 plus 5 is 12."] {
        assert!(text.contains(words), "{words}: {text}");
    }
    for stage in ["system", "bandwidth", "dispatches", "answer", "verdict"] {
        assert!(text.contains(&format!("\n## {stage}: ")) && told(&done, stage).ends_with(" s)"), "{stage}: {done:?}");
    }
    assert!(done.err.contains("the whole report is in wglm-report.txt"), "{done:?}");
    let private = dir.path().to_str().unwrap();
    assert!(!text.contains(private) && !text.contains("jane") && !done.out.contains("jane"), "{text}");
}

/// A crash loses one item of a list, and a hang the rest of its stage. The later stages run.
#[cfg(unix)]
#[test]
fn extended_a_crash_or_a_hang_loses_nothing_else() {
    let dir = TempDir::new().unwrap();
    let done = report(dir.path(), "--only crash,hang,dispatches --silence 2 -o mine.txt");
    assert_eq!(done.code, Some(0), "{done:?}");
    let text = read(dir.path(), "mine.txt");
    let lines = summary(&done, &text);
    assert_eq!(lines[0], "crash: CRASHED (signal 6), after the line `[1] an item:`");
    assert_eq!(lines[1], "crash: good from item 2 on");
    assert!(lines[2].starts_with("hang: HUNG: killed after ") && lines[2].ends_with("`the beginning of a line`"));
    assert!(lines[3].starts_with("dispatches: ") && lines.len() == 4, "{lines:?}");
    let items = ["\n[0] an item: good\n", "\n[1] an item: \n", "\n[2] an item: good\n", "\nthe beginning of a line\n"];
    let places = items.map(|item| text.find(item).unwrap_or_else(|| panic!("{item:?}: {text}")));
    assert!(places.is_sorted(), "{text}");
    assert!(told(&done, "crash").contains("CRASHED") && told(&done, "hang").contains("HUNG"), "{done:?}");
}

/// The summary has the results until then.
#[cfg(unix)]
#[test]
fn an_interrupt_ends_the_stage_and_writes_the_summary() {
    let dir = TempDir::new().unwrap();
    let mut command = command(["report", "--only", "hang,answer", "-o", "report.txt"]);
    command.current_dir(dir.path()).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    let path = dir.path().join("report.txt");
    while !std::fs::read_to_string(&path).is_ok_and(|text| text.contains("the beginning of a line")) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let status = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    let output = child.wait_with_output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    let done = CommandResult { code: output.status.code(), out, err };
    assert_eq!(done.code, Some(130), "{done:?}");
    let lines = summary(&done, &std::fs::read_to_string(path).unwrap()).join("\n");
    let expected =
        "hang: was stopped by Ctrl-C, after the line `the beginning of a line`\nanswer: not run, stopped by Ctrl-C";
    assert_eq!(lines, expected);
}

/// If time is short, stages say what they left out; shaders are written before they are compiled.
#[test]
fn extended_stages_leave_out_what_takes_too_long() {
    let dir = TempDir::new().unwrap();
    let done = report(dir.path(), "--only pipelines,selftest,bench --seconds 2 --shaders shaders");
    assert_eq!(done.code, Some(0), "{done:?}");
    let text = read(dir.path(), "wglm-report.txt");
    let lines = summary(&done, &text);
    assert!(text.contains("skipped for lack of time: ") && lines[0].contains(" compiled, 0 refused, in "), "{text}");
    assert!(lines.iter().any(|line| line.contains("kernels skipped for lack of time")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains(" passed, 0 failed (")), "{lines:?}");
    assert_eq!(lines.last(), Some(&"bench: skipped: no model was given (-m FILE)"));
    let written = std::fs::read_dir(dir.path().join("shaders")).unwrap().map(|entry| entry.unwrap().path());
    let written: Vec<PathBuf> = written.collect();
    assert!(!written.is_empty(), "{text}");
    for path in written {
        let shader = std::fs::read_to_string(&path).unwrap();
        let whole = shader.contains("#include <metal_stdlib>") && shader.contains("kernel void main_(");
        assert!(whole && path.extension().is_some_and(|it| it == "metal"), "{}: {shader}", path.display());
    }
    // A second report does not replace the first.
    assert_eq!(report(dir.path(), "--only bench").code, Some(0));
    assert!(read(dir.path(), "wglm-report-2.txt").contains("## bench") && read(dir.path(), "wglm-report.txt") == text);
}

#[test]
fn wrong_usage() {
    let dir = TempDir::new().unwrap();
    for (line, code, words) in [
        ("--only nosuch", 2, "[possible values: system, bandwidth, "),
        ("-m nosuch.gguf", 1, "nosuch.gguf"),
        ("--only bench -o no/such/file", 1, "cannot create no/such/file; name another file with -o"),
    ] {
        let done = report(dir.path(), line);
        assert!(done.code == Some(code) && done.err.contains(words) && !done.err.contains("hang"), "{line}: {done:?}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was written");
}

/// Rows whose errors exceed their bounds, but not four times these, are marked.
#[test]
fn rows_that_wider_bounds_would_pass_are_marked() {
    let rows = json(&succeed("selftest -k rms_norm -o json").out);
    let share = rows[0]["share"].as_f64().unwrap();
    assert_eq!((rows[0]["passes_at_four"].as_bool(), share > 0.0), (Some(false), true), "{rows}");
    for (part, passes) in [(2.0, true), (8.0, false)] {
        let bounds = format!("{}", share / part);
        let done = outcome(command(["selftest", "-k", "rms_norm", "--bounds", &bounds]));
        assert_eq!(done.code, Some(1), "{done:?}");
        assert_eq!(done.out.contains("rms_norm - float: passes with four times its bound"), passes, "{done:?}");
    }
}
