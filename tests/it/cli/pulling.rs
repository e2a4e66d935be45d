//! Tests `pull`, `models` and names of models, against a hub of our own.

use super::{ANSWER, CommandResult, QUESTION, command, json, outcome, refused};
use crate::common::hub::{COMMIT, Files, Reply, Request, Server, contents, folder, hash, noise};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::{TempDir, tempdir};

const NAME: &str = "owner/some-GGUF";

/// A home folder, and a hub.
struct Desk {
    home: TempDir,
    server: Server,
}

impl Desk {
    fn new(answer: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self { home: tempdir().unwrap(), server: Server::start(answer) }
    }

    /// A hub with the demonstration model, and with a file that is not a model.
    fn usual() -> Self {
        let files = Files::of(&[("demo-Q4_0.gguf", wglm::DEMO_MODEL), ("demo-Q8_0.gguf", &noise(9_000_000))]);
        Self::new(move |request, _| files.answer(request))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        for name in ["HF_TOKEN", "HF_TOKEN_PATH", "HF_HOME", "HF_HUB_OFFLINE", "LLAMA_CACHE", "WGLM_COMMAND"] {
            command.env_remove(name);
        }
        for name in ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"] {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
        command.env("HOME", self.home.path()).env("HF_ENDPOINT", &self.server.address);
        command.env("HF_HUB_CACHE", self.cache()).env("OLLAMA_MODELS", self.home.path().join(".ollama/models"));
        command
    }

    fn cache(&self) -> PathBuf {
        self.home.path().join("hub")
    }

    fn run(&self, args: &[&str]) -> CommandResult {
        outcome(self.command(args))
    }

    fn succeed(&self, args: &[&str]) -> CommandResult {
        let done = self.run(args);
        assert_eq!(done.code, Some(0), "{args:?}: {done:?}");
        done
    }
}

#[test]
fn extended_a_pulled_model_answers_by_its_name() {
    let desk = Desk::usual();
    let named = format!("{NAME}:Q4_0");
    let done = desk.succeed(&["pull", &named]);
    let path = folder(&desk.cache()).join("snapshots").join(COMMIT).join("demo-Q4_0.gguf");
    assert_eq!(done.out, format!("{}\n", path.display()));
    assert!(done.err.contains(&format!("wglm chat -m {named}")), "{}", done.err);
    assert_eq!(contents(&path).unwrap(), wglm::DEMO_MODEL);
    for name in [NAME, &named, "OWNER/SOME-gguf:q4_0"] {
        let reply = desk.succeed(&["run", "--temp", "0", "-m", name, QUESTION]);
        assert_eq!(reply.out, ANSWER);
        assert!(!reply.err.contains("demonstration"), "{}", reply.err);
    }
    let shown = desk.succeed(&["inspect", "--json", NAME]);
    assert_eq!(json(&shown.out)["metadata"]["general.architecture"], "deepseek2");
    assert!(done.err.contains("is downloaded, and its SHA-256 matches"), "{}", done.err);
    // The second time nothing is downloaded, and no hash is compared.
    let again = json(&desk.succeed(&["pull", "--json", &named]).out);
    assert_eq!((&again["received"], &again["verified"]), (&0.into(), &false.into()));
    let again = desk.succeed(&["pull", &named]);
    assert!(again.err.contains("was here already") && !again.err.contains("SHA-256"), "{}", again.err);
}

#[test]
fn extended_a_list_shows_what_fits_and_downloads_nothing() {
    let desk = Desk::usual();
    let done = desk.succeed(&["pull", "--list", NAME]);
    let line = |label: &str| done.out.lines().find(|line| line.contains(label)).unwrap();
    assert!(line("Q4_0").ends_with("yes   <- suggested"), "{}", done.out);
    assert!(line("Q8_0").ends_with("  no") && done.out.contains("\n    not a GGUF file"), "{}", done.out);
    let offers = json(&desk.succeed(&["pull", "--list", "--json", NAME]).out);
    assert_eq!(
        (&offers[0]["label"], &offers[0]["fits"], &offers[0]["chosen"]),
        (&"Q4_0".into(), &true.into(), &true.into())
    );
    assert_eq!(
        (&offers[1]["label"], &offers[1]["fits"], &offers[1]["chosen"]),
        (&"Q8_0".into(), &false.into(), &false.into())
    );
    assert!(offers[0]["needs"].as_u64().unwrap() > 5_000_000, "{offers}");
    assert!(!desk.cache().exists());
}

/// Without a label the one that suits the machine is downloaded.
#[test]
fn the_suitable_model_is_chosen() {
    let desk = Desk::usual();
    let done = desk.succeed(&["pull", NAME]);
    assert!(done.out.ends_with("demo-Q4_0.gguf\n") && done.err.contains(":Q4_0 suits this machine"), "{done:?}");
    let files = Files::of(&[("x-Q8_0.gguf", &noise(1000))]);
    let desk = Desk::new(move |request, _| files.answer(request));
    refused("nothing fits", &desk.run(&["pull", NAME]), "no model of owner/some-GGUF fits");
}

/// If a header cannot be fetched, no other model is chosen instead, and the list says that its fit is unknown.
#[test]
fn extended_an_unreadable_header_decides_nothing() {
    let files = Files::of(&[("demo-Q2_K.gguf", wglm::DEMO_MODEL), ("demo-Q4_0.gguf", wglm::DEMO_MODEL)]);
    let desk = Desk::new(move |request, _| match request.path.contains("Q4_0") && request.is_content() {
        true => Reply::new(503).with("retry-after", "86400"),
        false => files.answer(request),
    });
    let done = desk.run(&["pull", NAME]);
    refused("a header", &done, "answers 503");
    assert!(!desk.cache().exists(), "{done:?}");
    let listed = desk.succeed(&["pull", "--list", NAME]).out;
    assert!(listed.contains("  ?\n") && listed.contains("503") && !listed.contains("<- suggested"), "{listed}");
    let offers = json(&desk.succeed(&["pull", "--list", "--json", NAME]).out);
    let failed = offers.as_array().unwrap().iter().find(|offer| offer["label"] == "Q4_0").unwrap();
    assert!(failed["fits"].is_null() && failed["why_not"].as_str().unwrap().contains("503"), "{failed}");
    // The other model can be downloaded by its name.
    desk.succeed(&["pull", &format!("{NAME}:Q2_K")]);
    let files = Files::of(&[("demo-Q4_0.gguf", b"<html>please log in</html>")]);
    let desk = Desk::new(move |request, _| files.answer(request).with("content-type", "text/html"));
    refused("a page", &desk.run(&["pull", NAME]), "the server sent a web page instead of the file");
}

#[test]
fn extended_mistakes_are_explained() {
    let desk = Desk::usual();
    let wrong = desk.run(&["pull", &format!("{NAME}:Q5_K")]);
    refused("a wrong label", &wrong, "found Q4_0, Q8_0");
    assert!(!wrong.err.contains("hint:"), "{}", wrong.err);
    refused("no such repository", &desk.run(&["pull", "owner/other"]), "answers 404: not found; check the name");
    let wrong = desk.run(&["pull", "nothing"]);
    assert!(wrong.code == Some(2) && wrong.err.contains("expected OWNER/REPO or OWNER/REPO:QUANT"), "{wrong:?}");
    let done = desk.run(&["run", "-m", NAME, "hi"]);
    refused("not pulled", &done, &format!("no model `{NAME}`: found nothing"));
    assert!(done.err.contains(&format!("hint: `wglm pull {NAME}` downloads it")), "{}", done.err);
    // Messages name the script that stands for the command, and a file after the colon is not a path.
    let name = format!("{NAME}:demo-Q4_0.gguf");
    let mut scripted = desk.command(&["run", "-m", &name, "hi"]);
    scripted.env("WGLM_COMMAND", "./run");
    let done = outcome(scripted);
    assert!(done.err.contains(&format!("hint: `./run pull {name}` downloads it; `./run models`")), "{}", done.err);
    // Anything that is not a name is a file.
    refused("a file", &desk.run(&["run", "-m", "nosuch.gguf", "hi"]), "cannot open nosuch.gguf");
    let mut nowhere = desk.command(&["pull", NAME]);
    nowhere.env("HF_ENDPOINT", "huggingface.co");
    refused("an endpoint", &outcome(nowhere), "expected an address such as https://huggingface.co");
}

/// Files on this machine can be compared with their hashes, with the hub and without it.
#[test]
fn extended_files_on_this_machine_are_compared() {
    let desk = Desk::usual();
    let named = format!("{NAME}:Q4_0");
    refused(
        "nothing is here",
        &desk.run(&["pull", "--verify", NAME]),
        "no model of owner/some-GGUF is on this machine",
    );
    let missing = desk.run(&["pull", "--verify", &named]);
    assert!(missing.code == Some(1) && missing.out.starts_with(&format!("missing  {named}  ")), "{missing:?}");
    desk.succeed(&["pull", &named]);
    let blob = folder(&desk.cache()).join("blobs").join(hash(wglm::DEMO_MODEL));
    let both: [&[&str]; 4] = [
        &["pull", "--verify", &named],
        &["pull", "--verify", NAME],
        &["models", "--verify"],
        &["models", "--verify", NAME],
    ];
    for args in both {
        let done = desk.succeed(args);
        assert!(done.out.starts_with(&format!("right    {named}  ")) && done.out.lines().count() == 1, "{done:?}");
    }
    let mut bytes = wglm::DEMO_MODEL.to_vec();
    bytes[1_000_000] ^= 1;
    std::fs::write(&blob, bytes).unwrap();
    // Its size is right.
    assert!(desk.succeed(&["pull", &named]).err.contains("was here already"));
    for args in both {
        let done = desk.run(args);
        assert!(done.code == Some(1) && done.out.starts_with(&format!("wrong    {named}  ")), "{done:?}");
        assert!(done.err.contains("delete the wrong files, and `wglm pull` downloads them again"), "{done:?}");
    }
    let told = desk.run(&["pull", "--verify", "--json", &named]);
    let told = (told.code, json(&told.out)[0].clone());
    assert_eq!((told.0, &told.1["state"], &told.1["model"]), (Some(1), &"wrong".into(), &named.as_str().into()));
    std::fs::remove_file(told.1["path"].as_str().unwrap()).unwrap();
    desk.succeed(&["pull", &named]);
    desk.succeed(&["models", "--verify", &named]);
    refused("no such model", &desk.run(&["models", "--verify", "owner/other"]), "no model `owner/other`");
    assert_eq!(desk.run(&["models", NAME]).code, Some(2), "a name is for --verify");
}

/// Ctrl-C leaves the received bytes, and the same command continues from there.
#[cfg(unix)]
#[test]
fn extended_an_interrupted_pull_continues() {
    let files = Files::of(&[("demo-Q4_0.gguf", wglm::DEMO_MODEL)]);
    let told = Arc::new(AtomicBool::new(false));
    let tell = told.clone();
    let desk = Desk::new(move |request, _| {
        let mut reply = files.answer(request);
        if request.range().is_some_and(|(first, last)| request.is_content() && last - first > 2_000_000) {
            reply.held = Some((told.clone(), 600_000));
        }
        reply
    });
    let part = folder(&desk.cache()).join("blobs").join(format!("{}.part", hash(wglm::DEMO_MODEL)));
    let name = format!("{NAME}:Q4_0");
    let mut command = desk.command(&["pull", &name]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = |path: &Path| std::fs::metadata(path).map_or(0, |about| about.len());
    let start = Instant::now();
    while begun(&part) < 500_000 {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing comes");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    tell.store(true, Ordering::Relaxed);
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{err}");
    assert!(err.contains("the same command resumes the download") && output.stdout.is_empty(), "{err}");
    let there = contents(&part).unwrap();
    assert!(there.len() >= 500_000 && there == wglm::DEMO_MODEL[..there.len()], "{} bytes", there.len());
    let listed = json(&desk.succeed(&["models", "--json"]).out);
    assert_eq!((&listed[0]["name"], &listed[0]["whole"]), (&NAME.into(), &false.into()));
    let done = json(&desk.succeed(&["pull", "--json", &name]).out);
    assert_eq!(done["received"], wglm::DEMO_MODEL.len() - there.len());
    assert!(!part.exists());
}

#[test]
fn extended_a_token_and_a_proxy_are_used() {
    let desk = Desk::usual();
    let mut command = desk.command(&["pull", "--list", "--json", NAME]);
    // No server has this address except behind the proxy, which is the hub.
    command
        .env("HF_ENDPOINT", "http://hub.invalid:99")
        .env("HTTP_PROXY", &desk.server.address)
        .env("HF_TOKEN", "hf_abc");
    let done = outcome(command);
    assert_eq!(done.code, Some(0), "{done:?}");
    let asked = desk.server.requests();
    let of_hub = asked.iter().filter(|request| request.path.starts_with("/api/"));
    assert!(of_hub.clone().count() == 1 && of_hub.clone().all(|r| r.header("authorization") == Some("Bearer hf_abc")));
    let mut command = desk.command(&["pull", "--list", NAME]);
    command.env("HTTP_PROXY", "http://127.0.0.1:1").env("NO_PROXY", "127.0.0.1");
    assert_eq!(outcome(command).code, Some(0));
    // The errors of a listing name the proxy, and there is no download to resume.
    let mut command = desk.command(&["pull", "--list", NAME]);
    command.env("HF_ENDPOINT", "http://hub.invalid:99").env("HTTP_PROXY", "http://name:secret@127.0.0.1:1");
    let done = outcome(command);
    refused("no proxy", &done, "cannot get owner/some-GGUF: ");
    assert!(done.err.contains("hub.invalid:99 through the proxy 127.0.0.1:1 (HTTPS_PROXY"), "{}", done.err);
    assert!(!done.err.contains("secret") && !done.err.contains("resume"), "{}", done.err);
    // The token that `hf auth login` stores.
    let kept = desk.home.path().join("token");
    std::fs::write(&kept, "hf_kept\n").unwrap();
    let mut command = desk.command(&["pull", "--list", NAME]);
    command.env("HF_TOKEN_PATH", &kept);
    assert_eq!(outcome(command).code, Some(0));
    let last = desk.server.requests().into_iter().rfind(|request| request.path.starts_with("/api/")).unwrap();
    assert_eq!(last.header("authorization"), Some("Bearer hf_kept"));
}

/// Models of other programs are listed and used by the names that these programs give them.
#[test]
fn long_models_of_other_programs_are_found() {
    let desk = Desk::usual();
    let none = desk.succeed(&["models"]);
    assert!(none.out.is_empty() && none.err.contains("no models in"), "{none:?}");
    let home = desk.home.path();
    let write = |path: &str, bytes: &[u8]| {
        let path = home.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    write(".lmstudio/models/publisher/demo-GGUF/demo-Q4_0.gguf", wglm::DEMO_MODEL);
    write("llama/someone_demo-GGUF_demo-Q4_0.gguf", wglm::DEMO_MODEL);
    write("llama/someone_other-GGUF_other-Q8_0.gguf", b"<html></html>");
    let digest = hash(wglm::DEMO_MODEL);
    write(&format!(".ollama/models/blobs/sha256-{digest}"), wglm::DEMO_MODEL);
    let layer = |kind: &str, digest: &str| serde_json::json!({ "mediaType": format!("application/vnd.ollama.image.{kind}"), "digest": format!("sha256:{digest}") });
    let manifest = serde_json::json!({ "layers": [layer("license", &"0".repeat(64)), layer("model", &digest)] });
    let manifests = ".ollama/models/manifests/registry.ollama.ai";
    write(&format!("{manifests}/library/glm-4.7-flash/latest"), manifest.to_string().as_bytes());
    let bad = serde_json::json!({ "layers": [layer("model", "../../../etc/passwd")] });
    write(&format!("{manifests}/library/bad/latest"), bad.to_string().as_bytes());
    write(&format!("{manifests}/library/worse/latest"), b"{");

    let run = |args: &[&str]| {
        let mut command = desk.command(args);
        command.env("LLAMA_CACHE", home.join("llama"));
        outcome(command)
    };
    let listed = json(&run(&["models", "--json"]).out);
    let found: Vec<(&str, &str, bool)> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|m| (m["name"].as_str().unwrap(), m["source"].as_str().unwrap(), m["fits"].as_bool().unwrap()))
        .collect();
    assert_eq!(
        found,
        [
            ("glm-4.7-flash:latest", "ollama", true),
            ("publisher/demo-GGUF:Q4_0", "lm_studio", true),
            ("someone_demo-GGUF_demo-Q4_0", "llama_cpp", true),
            ("someone_other-GGUF_other-Q8_0", "llama_cpp", false),
        ]
    );
    assert_eq!((&listed[0]["architecture"], &listed[0]["format"]), (&"deepseek2".into(), &"q4_0".into()));
    let table = run(&["models"]);
    assert!(table.out.contains("\n    not a GGUF file") && table.err.contains("-m accepts these names"), "{table:?}");
    assert!(run(&["models", "--verbose"]).out.contains("deepseek2"));
    for name in ["glm-4.7-flash:latest", "glm-4.7-flash", "publisher/demo-GGUF", "someone_demo-GGUF_demo-Q4_0"] {
        let reply = run(&["run", "--temp", "0", "-q", "-m", name, QUESTION]);
        assert_eq!(reply.out, ANSWER, "{name}: {reply:?}");
    }
}

/// LM Studio's folder is the one in its settings.
#[test]
fn a_moved_folder_of_lm_studio_is_found() {
    let desk = Desk::usual();
    let (home, moved) = (desk.home.path(), desk.home.path().join("a disk/models"));
    std::fs::create_dir_all(home.join(".lmstudio")).unwrap();
    let settings = serde_json::json!({ "downloadsFolder": moved, "other": [1] });
    std::fs::write(home.join(".lmstudio/settings.json"), settings.to_string()).unwrap();
    std::fs::create_dir_all(moved.join("publisher/demo-GGUF")).unwrap();
    std::fs::write(moved.join("publisher/demo-GGUF/demo-Q4_0.gguf"), wglm::DEMO_MODEL).unwrap();
    let listed = json(&desk.succeed(&["models", "--json"]).out);
    assert_eq!((&listed[0]["name"], &listed[0]["source"]), (&"publisher/demo-GGUF:Q4_0".into(), &"lm_studio".into()));
    let refusal = desk.run(&["models", "rm", "publisher/demo-GGUF", "--yes"]);
    refused("another program's", &refusal, "which is LM Studio's; delete it there (My Models), or the file ");
    assert!(moved.join("publisher/demo-GGUF/demo-Q4_0.gguf").exists());
}

/// All commands print the same figure for a model's memory, in the same unit.
#[test]
fn extended_all_commands_print_the_same_memory() {
    let desk = Desk::usual();
    let name = format!("{NAME}:Q4_0");
    desk.succeed(&["pull", &name]);
    for options in [&[][..], &["-c", "2000", "--cache-type", "f16"]] {
        let of = |args: &[&str]| {
            let (command, rest) = args.split_at(1);
            desk.succeed(&[command, options, rest].concat()).out
        };
        let needs = json(&of(&["models", "--json"]))[0]["needs"].clone();
        assert!(needs.as_u64().unwrap() > 10_000_000);
        assert_eq!(json(&of(&["pull", "--list", "--json", NAME]))[0]["needs"], needs);
        assert_eq!(json(&of(&["inspect", "--json", &name]))["needs"]["total"], needs);
        assert_eq!(json(&of(&["plan", "--json", "-m", &name]))["memory"]["total"], needs);
        let told = wglm_engine::instruments::Size(needs.as_u64().unwrap()).to_string();
        for args in [&["models"][..], &["pull", "--list", NAME], &["inspect", &name], &["plan", "-m", &name]] {
            assert!(of(args).contains(&told), "{args:?}: {told}");
        }
    }
}

/// In a cache that other programs share, a model is deleted with its contents, and theirs stay.
#[cfg(unix)]
#[test]
fn extended_a_model_is_removed() {
    let desk = Desk::usual();
    let named = format!("{NAME}:Q4_0");
    desk.succeed(&["pull", &named]);
    let root = folder(&desk.cache());
    let blob = root.join("blobs").join(hash(wglm::DEMO_MODEL));
    let unasked = desk.run(&["models", "rm", &named]);
    assert!(unasked.code == Some(2) && unasked.err.contains("--yes deletes owner/some-GGUF:Q4_0"), "{unasked:?}");
    assert!(blob.exists());
    refused("no such model", &desk.run(&["models", "rm", "owner/other", "--yes"]), "no model `owner/other`");
    let before = desk.run(&["models", "--json", "rm", &named]);
    let error = json(&before.out)["error"].as_str().unwrap_or_default().to_owned();
    assert!(before.code == Some(2) && error.contains("--yes deletes") && before.err.contains(&error), "{before:?}");
    let done = json(&desk.succeed(&["models", "--json", "rm", "--yes", &named.to_uppercase()]).out);
    assert_eq!((&done["freed"], &done["name"]), (&wglm::DEMO_MODEL.len().into(), &named.as_str().into()));
    assert!(!root.exists() && desk.succeed(&["models"]).err.contains("no models in"));
    desk.succeed(&["pull", &named]);
    let part = root.join("blobs").join(format!("{}.part", "0".repeat(64)));
    std::fs::write(&part, "unfinished").unwrap();
    let done = desk.succeed(&["models", "rm", "-y", NAME]).out;
    assert!(done.contains("which is incomplete, and freed 10 bytes") && !part.exists() && blob.exists(), "{done}");
    let done = desk.succeed(&["models", "rm", "-y", NAME]).out;
    assert_eq!(done, format!("deleted {named} and freed 5.9 MiB\n"));
}

/// Offline, a pull uses the models on this machine, and says so.
#[test]
fn extended_offline_local_models_are_used() {
    let desk = Desk::usual();
    let offline = |args: &[&str]| {
        let mut command = desk.command(args);
        command.env("HF_HUB_OFFLINE", "1");
        outcome(command)
    };
    let missing = offline(&["pull", NAME]);
    refused(
        "not here",
        &missing,
        "nothing can be downloaded while HF_HUB_OFFLINE is set: no model `owner/some-GGUF` on",
    );
    assert!(missing.err.contains("found nothing; unset HF_HUB_OFFLINE to download it"), "{}", missing.err);
    desk.succeed(&["pull", &format!("{NAME}:Q4_0")]);
    let asked = desk.server.requests().len();
    let done = offline(&["pull", NAME]);
    assert!(done.code == Some(0) && done.err.contains("offline (HF_HUB_OFFLINE)"), "{done:?}");
    assert!(done.out.ends_with("demo-Q4_0.gguf\n"), "{done:?}");
    assert_eq!(json(&offline(&["pull", "--json", NAME]).out)["received"], 0);
    refused("a list", &offline(&["pull", "--list", NAME]), "`wglm models` lists the models on this machine");
    assert_eq!(offline(&["run", "--temp", "0", "-q", "-m", NAME, QUESTION]).out, ANSWER);
    assert_eq!(desk.server.requests().len(), asked, "no server is asked");
}

/// After the demonstration model's first answer, and only then, two lines say how to get a real one.
#[test]
fn long_a_real_model_is_offered_once() {
    let desk = Desk::usual();
    let mut command = desk.command(&["chat", "--temp", "0"]);
    command.env("WGLM_COMMAND", "./run");
    let talk = super::fed(command, format!("{QUESTION}\n{QUESTION}\n").as_bytes());
    let offers = talk.err.matches("That was the demonstration model").count();
    // A machine with too little memory for any model is offered none.
    let memory = json(&desk.succeed(&["devices", "--json"]).out)[0]["memory"].as_u64();
    assert_eq!(offers, usize::from(memory.is_none_or(|memory| memory >= 3_000_000_000)), "{}", talk.err);
    if offers > 0 {
        let lines: Vec<&str> = talk.err.lines().filter(|line| line.starts_with("  ./run ")).collect();
        assert!(
            lines.len() == 2 && lines[0].starts_with("  ./run pull ") && lines[0].ends_with("-GGUF"),
            "{}",
            talk.err
        );
        assert_eq!(lines[1].replace("chat -m", "pull"), lines[0]);
    }
    for quiet in [&["run", "-q", QUESTION][..], &["run", "--json", QUESTION]] {
        let done = desk.succeed(quiet);
        assert!(!done.err.contains("demonstration"), "{done:?}");
    }
}
