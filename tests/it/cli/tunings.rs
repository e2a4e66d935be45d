//! Tests that the results of `tune` are saved, found again, and ignored where they do not apply.

use super::{ANSWER, CommandResult, QUESTION, command, json, outcome, refuses, succeed, wglm, with_cache, written};
use crate::hostile_models::small::Small;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use wglm::tune::{Choices, Tuning, TuningSubject};
use wglm::{Gguf, Gpu, GpuOptions};

/// A tuning for the demonstration model on this GPU that gives a step a tiling that is in no table.
fn tuning() -> Tuning {
    let gpu = Gpu::open(&GpuOptions::default()).unwrap();
    let subject = TuningSubject::of(&gpu, &Gguf::from_static(wglm::DEMO_MODEL).unwrap()).unwrap();
    let choices = Choices { tilings: vec!["moe.down@1=4x2x256".parse().unwrap()], ..Choices::default() };
    Tuning::new(subject, choices)
}

/// Profiles a token with its own configuration folder.
fn profile(folder: &Path, rest: &[&str]) -> CommandResult {
    let mut command = command(["profile", "-r", "1", "-o", "json"]);
    command.args(rest);
    with_cache(&mut command, folder);
    let done = outcome(command);
    assert_eq!(done.code, Some(0), "{done:?}");
    done
}

/// Whether the step had the tiling of that tuning.
fn is_tuned(done: &CommandResult) -> bool {
    let kinds = json(&done.out)["kinds"].clone();
    let down = kinds.as_array().unwrap().iter().find(|kind| kind["step"] == "moe.down").unwrap().clone();
    let variant = down["variant"].as_str().unwrap();
    variant.contains("w256")
}

fn kept(folder: &Path, tuning: &Tuning, text: &str) -> PathBuf {
    let folder = folder.join("wglm/tunings");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(tuning.subject.file_name());
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn extended_a_saved_tuning_is_found() {
    let (dir, tuning) = (tempfile::tempdir().unwrap(), tuning());
    assert!(!is_tuned(&profile(dir.path(), &[])), "there is none yet");
    let path = kept(dir.path(), &tuning, &tuning.to_string());
    let done = profile(dir.path(), &[]);
    assert!(is_tuned(&done) && !done.err.contains("note:"), "{done:?}");
    let off = profile(dir.path(), &["--tuning", "off"]);
    assert!(!is_tuned(&off) && !off.err.contains("note:"), "{off:?}");
    // Explicit options come first.
    assert!(!is_tuned(&profile(dir.path(), &["--tiling", "moe.down=8x1x128"])));

    // A named tuning replaces the saved one.
    let other = written(&dir, "other.json", Tuning::new(tuning.subject, Choices::default()).to_string().as_bytes());
    assert!(!is_tuned(&profile(dir.path(), &["--tuning", other.to_str().unwrap()])));
    let elsewhere = tempfile::tempdir().unwrap();
    assert!(is_tuned(&profile(elsewhere.path(), &["--tuning", path.to_str().unwrap()])));
}

#[test]
fn extended_other_tunings_are_ignored_with_a_note() {
    let (dir, tuning) = (tempfile::tempdir().unwrap(), tuning());
    let with = |change: fn(&mut TuningSubject)| {
        let mut other = tuning.clone();
        change(&mut other.subject);
        other.to_string()
    };
    let cases = [
        (with(|subject| subject.wglm = "0.0.9".into()), "it was made for wglm `0.0.9`"),
        (with(|subject| subject.model.push('x')), "it was made for the model"),
        ("{".to_owned(), "expected a tuning as wglm"),
    ];
    for (text, words) in cases {
        let ignored = |done: &CommandResult, words: &str| {
            let notes: Vec<&str> = done.err.lines().filter(|line| line.starts_with("note: ")).collect();
            let told = notes.len() == 1 && notes[0].contains(" is not used: ") && notes[0].contains(words);
            assert!(told && !is_tuned(done), "{words}: {done:?}");
        };
        kept(dir.path(), &tuning, &text);
        ignored(&profile(dir.path(), &[]), words);
    }
    // A named file has to exist and be a tuning, otherwise nothing is computed.
    let named = written(&dir, "named.json", tuning.to_string().replace("4x2x256", "4x2").as_bytes());
    let named = named.to_str().unwrap();
    for (file, words) in [(named, "expected a tuning as wglm"), ("nowhere.json", "--tuning: cannot use nowhere.json: ")]
    {
        refuses(&format!("run hi -q --tuning {file}"), words);
    }
    let other = written(&dir, "other.json", with(|subject| subject.wglm = "0.0.9".into()).as_bytes());
    let done = profile(dir.path(), &["--tuning", other.to_str().unwrap()]);
    assert!(!is_tuned(&done) && done.err.matches("note: ").count() == 1, "{done:?}");
}

/// A short search ends with its report. A file exists if and only if something was chosen, and applies here.
#[test]
fn extended_tune_reports_and_saves() {
    let dir = tempfile::tempdir().unwrap();
    let model = written(&dir, "small.gguf", &Small::with_short_context().file()).display().to_string();
    let tune = |rest: &[&str]| {
        let mut command = command(["tune", "--budget", "2", "-m", &model]);
        command.args(rest);
        with_cache(&mut command, dir.path());
        let done = outcome(command);
        assert_eq!(done.code, Some(0), "{done:?}");
        done
    };
    let done = tune(&["-o", "json"]);
    let found: Tuning = done.out.parse().unwrap();
    let path = dir.path().join("wglm/tunings").join(found.subject.file_name());
    assert_eq!(path.exists(), !found.choices.is_empty(), "{done:?}");
    if path.exists() {
        assert!(done.err.contains(&format!("saved in {}", path.display())), "{done:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), done.out);
        assert!(!profile(dir.path(), &["-m", &model]).err.contains("note:"));
    } else {
        assert!(done.err.contains("nothing was written"), "{done:?}");
    }
    let off = TempDir::new().unwrap();
    let mut command = command(["tune", "--budget", "1", "--tuning", "off", "-m", &model]);
    with_cache(&mut command, off.path());
    let done = outcome(command);
    assert!(done.code == Some(0) && done.out.contains(" tried, "), "{done:?}");
    assert!(!off.path().join("wglm/tunings").exists());
    let file = dir.path().join("mine.json");
    let done = tune(&["-o", "csv", "--tuning", file.to_str().unwrap()]);
    assert!(done.out.starts_with("step,candidate,work,before_seconds,"), "also without trials: {done:?}");
    assert_eq!(file.exists(), done.err.contains("saved in "), "{done:?}");
}

/// The first start on an unmeasured GPU says that it tunes, saves the result, and answers. The next start finds the
/// result. Options against tuning or for quiet output prevent it.
#[test]
fn extended_a_first_start_tunes_once() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("wglm/tunings").join(tuning().subject.file_name());
    let run = |rest: &[&str]| {
        let mut command = command(["run", "--temp", "0", "--first-tuning", "1", QUESTION]);
        command.args(rest);
        with_cache(&mut command, dir.path());
        let done = outcome(command);
        assert!(done.code == Some(0) && done.out == ANSWER, "{done:?}");
        done
    };
    let begins = |done: &CommandResult| done.err.contains(": measuring it now, once, for at most 1 s; Ctrl-C skips it");
    for off in [["--tuning", "off"].as_slice(), &["-q", "--tiling", "moe.down=8x1x64"]] {
        assert!(!begins(&run(off)) && !path.exists(), "{off:?}");
    }
    let done = run(&[]);
    assert!(begins(&done) && done.err.contains("`wglm tune` with the same -m measures more"), "{done:?}");
    let kept: Tuning = std::fs::read_to_string(&path).unwrap().parse().unwrap();
    assert_eq!(kept.subject, tuning().subject);
    let again = run(&[]);
    assert!(!begins(&again) && !again.err.contains("note:"), "{again:?}");
    // A tuning for another version cannot be used, so the start after an update tunes again.
    let mut old = kept;
    old.subject.wglm = "0.0.9".into();
    std::fs::write(&path, old.to_string()).unwrap();
    assert!(begins(&run(&[])));
    assert!(std::fs::read_to_string(&path).unwrap().parse::<Tuning>().unwrap().subject == tuning().subject);
}

/// Ctrl-C skips the tuning at once, for all later starts, and the answer follows anyway.
#[test]
fn an_interrupt_skips_only_the_tuning() {
    let dir = TempDir::new().unwrap();
    let mut command = command(["run", "--temp", "0", "--first-tuning", "3600", QUESTION]);
    with_cache(&mut command, dir.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains("Ctrl-C skips it") {
        assert!(err.read_line(&mut text).unwrap() > 0, "{text}");
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    err.read_to_string(&mut text).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout == ANSWER.as_bytes(), "{text}");
    assert!(
        text.contains("skipped; `wglm tune` with the same -m measures more")
            && dir.path().join("wglm/tunings").exists(),
        "{text}"
    );
}

#[test]
fn extended_wrong_usage() {
    for (line, words) in [
        ("tune --budget 0", "expected a positive number"),
        ("tune --budget soon", "expected a positive number"),
        ("tune --tuning", "a value is required"),
        ("profile --tiling-table intel", "possible values: nvidia, apple"),
        ("profile --tiling moe.down@0=8x1x64", "STEP@ROWS for plans of some rows"),
        ("profile --tiling moe.down=3x1x64", "LANESxROWSxWORKGROUP"),
    ] {
        let done = wglm(line);
        assert!(done.code == Some(2) && done.err.contains(words), "{line}: {done:?}");
    }
    // No message suggests to tune a software driver.
    assert!(!succeed("bench -p 0 -n 1 -r 1").err.contains("wglm tune"));
    let tables = ["nvidia", "apple"].map(|table| succeed(&format!("plan -v --tiling-table {table}")).out);
    assert_ne!(tables[0], tables[1]);
}
