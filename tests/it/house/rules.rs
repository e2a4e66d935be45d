//! Which modules and crates a module may name, and where things belong.

use super::code::{File, files, names, sources};
use wglm_engine::quant::QUANTS;

/// The engine's modules from the ground up: each may use those before it. Modules of one line may not use each other.
const ORDER: [&[&str]; 24] = [
    &["error"],
    &["cancel", "wgsl", "threads", "memory", "files", "visible"],
    &["disk"],
    &["quant", "gguf", "catalog"],
    &["download"],
    &["gpu"],
    &["shader"],
    &["plan"],
    &["kernels"],
    &["reference"],
    &["text", "sample", "speculate"],
    &["constrain"],
    &["model"],
    &["offers"],
    &["session"],
    &["generate"],
    &["tune"],
    &["chat"],
    &["owned"],
    &["scheduler"],
    &["asking"],
    &["stream"],
    &["instruments"],
    &["lib"],
];

/// The modules of the engine that the command may name: those that apps see, and its instruments.
const OPEN: [&str; 7] = ["catalog", "download", "instruments", "offers", "sample", "text", "tune"];

/// Modules that use only these, although others come before them.
const ASIDE: [(&str, &[&str]); 6] = [
    ("disk", &["error", "threads", "files"]),
    ("catalog", &["error", "files", "visible"]),
    ("text", &["error", "gguf"]),
    ("sample", &["error", "gguf"]),
    ("speculate", &["error"]),
    ("constrain", &["error", "text"]),
];

fn rank(module: &str) -> usize {
    ORDER.iter().position(|line| line.contains(&module)).unwrap_or_else(|| panic!("`{module}` has no place in ORDER"))
}

fn may_use(module: &str, other: &str) -> bool {
    let aside = ASIDE.iter().find(|(name, _)| *name == module);
    other == module || aside.map_or(rank(other) < rank(module), |(_, allowed)| allowed.contains(&other))
}

/// Fails with every complaint.
fn none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

fn is_module(name: &str) -> bool {
    ORDER.concat().contains(&name)
}

/// ARCHITECTURE.md lists the modules in this order.
#[test]
fn the_map_has_every_module_in_its_order() {
    let text = std::fs::read_to_string("ARCHITECTURE.md").unwrap();
    let map = text.split("## The map").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("a map");
    let listed: Vec<&str> = map
        .lines()
        .filter_map(|line| line.strip_prefix("    ").filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase())))
        .flat_map(|line| line.split("  ").next().unwrap_or_default().split(", "))
        .map(str::trim)
        .collect();
    assert_eq!(listed, ORDER.concat());
}

/// The list of calls in `session/step.rs` names functions that exist, in the files where they are.
#[test]
fn the_calls_of_a_token_are_where_their_list_says() {
    let text = std::fs::read_to_string("engine/src/session/step.rs").unwrap();
    let list: String =
        text.lines().take_while(|line| line.starts_with("//!")).map(|line| format!("{} ", &line[3..])).collect();
    let quoted: Vec<&str> = list.split("# Calls").nth(1).expect("a list").split('`').skip(1).step_by(2).collect();
    let pairs = quoted.windows(2).filter(|pair| pair[0].contains("::") && pair[1].ends_with(".rs"));
    let mut seen = 0;
    for pair in pairs {
        let function = pair[0].rsplit("::").next().unwrap();
        let code = std::fs::read_to_string(format!("engine/src/{}", pair[1])).unwrap();
        let defines = [format!("fn {function}("), format!("fn {function}<")].iter().any(|text| code.contains(text));
        assert!(defines, "`{}` is not in {}", pair[0], pair[1]);
        seen += 1;
    }
    assert!(seen >= 20, "only {seen} calls: is the search broken?");
}

#[test]
fn imports_point_one_way() {
    let mut complaints = Vec::new();
    let mut seen = 0;
    for file in files("engine/src", "rs") {
        let module = file.module().to_owned();
        let used = file.names_after("crate::");
        seen += used.len();
        for other in used.iter().filter(|name| is_module(name)) {
            if !may_use(&module, other) {
                complaints.push(format!("{}: {module} uses {other}", file.path));
            }
        }
        for other in used.iter().filter(|name| !is_module(name) && name.starts_with(char::is_lowercase)) {
            complaints.push(format!("{}: `crate::{other}` is no module of ORDER", file.path));
        }
        if used.contains(&"") {
            complaints.push(format!("{}: `crate::{{…}}` hides which modules it names", file.path));
        }
    }
    assert!(seen > 100, "only {seen} imports found: is the search broken?");
    none(complaints);
}

#[test]
fn the_command_keeps_to_what_is_open_of_the_engine() {
    let (mut complaints, mut seen) = (Vec::new(), 0);
    for file in files("command/src", "rs") {
        let named = file.names_from("wglm_engine::");
        seen += named.len();
        let closed = named.iter().filter(|name| is_module(name) && !OPEN.contains(name));
        complaints.extend(closed.map(|name| format!("{}: wglm_engine::{name}", file.path)));
    }
    assert!(seen > 300, "only {seen} names found: is the search broken?");
    none(complaints);
}

/// Names at the root of the crate would hide which module uses which. Only `Error` and `Result` are allowed.
#[test]
fn modules_name_each_other_rather_than_the_surface() {
    let mut complaints = Vec::new();
    for file in files("engine/src", "rs").iter().filter(|f| f.module() != "lib") {
        for name in file.names_after("crate::").into_iter().filter(|name| name.starts_with(char::is_uppercase)) {
            if name != "Error" && name != "Result" {
                complaints.push(format!("{}: crate::{name}", file.path));
            }
        }
    }
    none(complaints);
}

/// Crates, and a module of the standard library, that only some modules of the engine may name.
const ENGINE_PLACES: [(&str, &[&str]); 16] = [
    ("wgpu", &["gpu", "shader"]),
    ("objc2_metal", &["gpu"]),
    ("block2", &["gpu"]),
    ("naga", &["shader"]),
    ("pollster", &["gpu"]),
    ("memmap2", &["gguf"]),
    ("rustix", &["gguf", "files"]),
    ("crc32fast", &["disk", "gguf", "session"]),
    ("minijinja", &["text"]),
    ("tokenizers", &["text"]),
    ("futures_core", &["stream"]),
    ("std::env", &["catalog", "gpu"]),
    ("rustls", &["download"]),
    ("sha1", &["download"]),
    ("sha2", &["disk", "download", "gguf"]),
    ("ureq", &["download"]),
];

/// The same of the command.
const COMMAND_PLACES: [(&str, &[&str]); 9] = [
    ("axum", &["serve"]),
    ("hyper", &["serve"]),
    ("hyper_util", &["serve"]),
    ("jiff", &["serve"]),
    ("libc", &["serve"]),
    ("serde_path_to_error", &["serve"]),
    ("sha2", &["serve"]),
    ("subtle", &["serve"]),
    ("tokio", &["serve"]),
];

#[test]
fn every_dependency_is_named_by_its_modules_only() {
    let mut complaints = Vec::new();
    for (folder, places) in [("engine/src", &ENGINE_PLACES[..]), ("command/src", &COMMAND_PLACES)] {
        for file in files(folder, "rs") {
            for (name, allowed) in places {
                if !file.names_after(&format!("{name}::")).is_empty() && !allowed.contains(&file.module()) {
                    complaints.push(format!("{} names `{name}`, which belongs to {allowed:?}", file.path));
                }
            }
        }
    }
    none(complaints);
}

/// Files of the command that may write to a terminal directly, and why.
const WRITE: [(&str, &str); 4] = [
    ("command/src/output.rs", "all output goes through it: on a terminal it makes control characters visible"),
    ("command/src/terminal.rs", "escape sequences that restore the terminal"),
    ("command/src/logits.rs", "numbers, and not to a terminal"),
    ("command/src/progress.rs", "bars of indicatif, whose messages it makes visible"),
];

#[test]
fn the_command_writes_through_one_module() {
    let ways = ["stdout()", "stderr()", "::stdout", "::stderr", "print!(", "println!(", ".exit()"];
    let mut complaints = Vec::new();
    for file in files("command/src", "rs").iter().filter(|file| WRITE.iter().all(|(path, _)| *path != file.path)) {
        // Asking whether a stream is a terminal does not write to it.
        let writes = |line: &&str| ways.iter().any(|way| line.contains(way)) && !line.contains("().is_terminal()");
        complaints.extend(file.code().filter(writes).map(|line| format!("{}: {}", file.path, line.trim())));
    }
    none(complaints);
}

/// Files outside quant that may contain names of formats: which names, and why.
const SPELL_FORMATS: [(&str, &[&str], &str); 4] = [
    ("engine/src/gguf/types.rs", &[], "the sizes of all of GGML's types, most of them unknown to quant"),
    ("engine/src/gguf/value.rs", &["f32"], "a type of metadata"),
    ("engine/src/kernels/kv_write.rs", &["f16", "f32", "q8_0"], "what the cache holds"),
    ("command/src/args/model.rs", &["f16", "f32", "q8_0"], "what the cache may hold"),
];

#[test]
fn formats_are_named_only_in_quant() {
    let mut complaints = Vec::new();
    let mut needed = [false; SPELL_FORMATS.len()];
    for file in sources().iter().filter(|f| f.module() != "quant") {
        let spelt = |name: &str| file.code().any(|line| line.contains(&format!("\"{name}\"")));
        for name in QUANTS.iter().map(|quant| quant.name).filter(|name| spelt(name)) {
            let allows = |(path, names, _): &(&str, &[&str], &str)| {
                *path == file.path && (names.is_empty() || names.contains(&name))
            };
            match SPELL_FORMATS.iter().position(allows) {
                Some(exception) => needed[exception] = true,
                None => complaints.push(format!("{}: \"{name}\"", file.path)),
            }
        }
    }
    let stale = SPELL_FORMATS.iter().zip(needed).filter(|(_, needed)| !needed);
    complaints.extend(stale.map(|((path, ..), _)| format!("{path} is an exception and need not be")));
    none(complaints);
}

/// Every module may name f32, the type of kernels' vectors; cases of kernels may name any format.
#[test]
fn no_other_module_uses_a_single_format() {
    let constants: Vec<String> = QUANTS.iter().map(|q| q.name.to_uppercase()).filter(|name| name != "F32").collect();
    let mut complaints = Vec::new();
    for file in sources().iter().filter(|f| !["quant", "reference"].contains(&f.module())) {
        let used = file.code().filter(|line| line.contains("quant::")).flat_map(names);
        let singled = used.filter(|name| constants.iter().any(|constant| constant == name));
        complaints.extend(singled.map(|name| format!("{}: quant::{name}", file.path)));
    }
    none(complaints);
}

#[test]
fn shaders_are_not_written_in_rust() {
    let marks = ["@compute", "@workgroup_size", "@builtin", "@group", "var<storage", "var<uniform", "var<workgroup"];
    let holds = |f: &File, mark: &str| f.text.contains(mark).then(|| format!("{}: `{mark}`", f.path));
    none(sources().iter().flat_map(|f| marks.iter().filter_map(move |mark| holds(f, mark))).collect());
}

#[test]
fn every_shader_file_is_used() {
    let sources = files("engine/src", "rs");
    let used = |path: &str| sources.iter().any(|f| f.text.contains(&format!("source!(\"{path}\")")));
    let unused = |f: &File| {
        let path = f.path.strip_prefix("engine/wgsl/").unwrap();
        (!used(path)).then(|| format!("{}: no source!(\"{path}\")", f.path))
    };
    none(files("engine/wgsl", "wgsl").iter().filter_map(unused).collect());
}

/// The most columns of a line. rustfmt breaks code, but it leaves comments, and code in macros, as they are.
const COLUMNS: usize = 120;

/// Where lines are that people write, and in which kinds of files.
const WRITTEN: [(&str, &[&str]); 9] = [
    ("benches", &["md", "rs"]),
    ("bindings", &["md", "py", "rs", "swift"]),
    ("command", &["css", "html", "js", "rs"]),
    ("docs", &["md"]),
    ("engine", &["md", "rs", "wgsl"]),
    ("examples", &["md", "rs"]),
    ("models", &["md"]),
    ("src", &["rs"]),
    ("tests", &["md", "rs"]),
];

fn written() -> Vec<File> {
    let at_root = ["ARCHITECTURE.md", "CHANGELOG.md", "README.md"]
        .map(|path| File { path: path.into(), text: std::fs::read_to_string(path).unwrap() });
    let below = WRITTEN.iter().flat_map(|(folder, kinds)| kinds.iter().flat_map(|kind| files(folder, kind)));
    let generated = [".min.js", "/_core.py", "/WglmCore.swift"];
    below.chain(at_root).filter(|file| !generated.iter().any(|end| file.path.ends_with(end))).collect()
}

/// Whether a line may be longer: tables and addresses have no place where they could be broken, and texts in quotation
/// marks and attributes, which rustfmt leaves alone, read better whole.
fn stays_whole(path: &str, line: &str) -> bool {
    let is_rust = path.ends_with(".rs");
    let line = line.trim();
    let is_comment = line.starts_with("//");
    let is_text = line.contains('"') || line.ends_with('\\') || line.starts_with("#[");
    line.starts_with('|') || !line.contains(' ') || line.contains("https://") || (is_rust && !is_comment && is_text)
}

#[test]
fn lines_are_short() {
    let (mut complaints, mut seen) = (Vec::new(), 0);
    for file in written() {
        let mut quoted = false; // what a program prints, in a block of code of Markdown
        for (at, line) in file.text.lines().enumerate() {
            quoted ^= file.path.ends_with(".md") && line.trim_start().starts_with("```");
            seen += 1;
            if line.chars().count() > COLUMNS && !quoted && !stays_whole(&file.path, line) {
                complaints.push(format!("{}:{}: {} columns", file.path, at + 1, line.chars().count()));
            }
        }
    }
    assert!(seen > 100_000, "only {seen} lines found: is the search broken?");
    none(complaints);
}

#[test]
fn every_file_says_what_it_is() {
    let mute = |f: &File| (!f.text.starts_with("//! ")).then(|| f.path.clone());
    none(sources().iter().chain(&files("tests", "rs")).filter_map(mute).collect());
}

/// Fragments begin with a comment too, which says what they are and how they are used.
#[test]
fn every_shader_file_says_what_it_is() {
    none(files("engine/wgsl", "wgsl").iter().filter(|f| !f.text.starts_with("// ")).map(|f| f.path.clone()).collect());
}

/// `engine/wgsl/README.md` names every shader file, and every function and buffer of the files that kernels share.
#[test]
fn shader_files_are_described() {
    let readme = &files("engine/wgsl", "md")[0].text;
    let mut complaints = Vec::new();
    for file in files("engine/wgsl", "wgsl") {
        let mut path = file.path.split('/').skip(2);
        let (folder, name) = (path.next().unwrap(), path.next().unwrap());
        let section = readme.split("\n## ").find(|section| section.starts_with(&format!("{folder}: ")));
        let entry = section.and_then(|section| section.split("\n- **").find(|e| e.starts_with(&format!("`{name}`**"))));
        let Some(entry) = entry else {
            complaints.push(format!("{} is not described", file.path));
            continue;
        };
        let named = |line: &str, start: &str| {
            let rest = line.strip_prefix(start)?;
            Some(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>())
        };
        let buffer =
            |line: &str| named(line, "var<storage, read> ").or_else(|| named(line, "var<storage, read_write> "));
        let provided = |line: &str| named(line, "fn ").filter(|_| folder != "op");
        for name in file.text.lines().filter_map(|line| provided(line).or_else(|| buffer(line))) {
            if !entry.contains(&format!("`{name}`")) {
                complaints.push(format!("{}: `{name}` is not described", file.path));
            }
        }
    }
    none(complaints);
}
