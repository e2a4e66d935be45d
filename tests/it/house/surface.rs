//! The public interface: every type in a public signature can be named through it, or the item is hidden.

use super::code::{File, files, names};
use std::collections::{BTreeMap, BTreeSet};

/// The modules of the engine that apps see as a whole.
const MODULES: [&str; 6] = ["catalog", "download", "offers", "sample", "text", "tune"];

/// What follows each `pub use ` of a text: the last module of its path, or nothing, and the names, with ` as ` where
/// one is another here.
fn exports(text: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    text.split("\npub use ").skip(1).map(|used| {
        let used = &used[..used.find(';').unwrap()];
        let (path, rest) = used.rsplit_once("::").unwrap_or(("", used));
        let listed = rest.trim_matches(['{', '}']).split(',').map(str::trim).filter(|name| !name.is_empty());
        (path.rsplit("::").next().unwrap_or(""), listed.collect())
    })
}

/// The public names by the module that declares them, as it calls them.
fn public(sources: &[File]) -> BTreeMap<String, BTreeSet<String>> {
    let file = |path: &str| sources.iter().find(|file| file.path == path).unwrap();
    let original = |name: &&str| name.split_whitespace().next().map(str::to_owned);
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (module, names) in exports(&file("engine/src/lib.rs").text) {
        found.entry(module.to_owned()).or_default().extend(names.iter().filter_map(original));
    }
    for name in MODULES {
        let file = file(&format!("engine/src/{name}/mod.rs"));
        for (module, names) in exports(&file.text) {
            found.entry(module.to_owned()).or_default().extend(names.iter().filter_map(original));
            found.entry(name.to_owned()).or_default().extend(names.iter().filter_map(original));
        }
        found.entry(name.to_owned()).or_default().extend(declared(file).map(str::to_owned));
    }
    found
}

/// The public types that a file declares.
fn declared(file: &File) -> impl Iterator<Item = &str> {
    let kinds = ["pub struct ", "pub enum ", "pub trait ", "pub type "];
    file.text.lines().filter_map(move |line| {
        let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
        names(rest).next()
    })
}

/// The public signatures and fields of these types in a file, except hidden ones, each with the line where it begins.
fn signatures(file: &File, types: &BTreeSet<String>) -> Vec<(usize, String)> {
    let lines: Vec<&str> = file.text.lines().collect();
    let (mut found, mut inside) = (Vec::new(), false);
    for (index, line) in lines.iter().enumerate() {
        if line.starts_with("impl") || line.starts_with("pub struct ") {
            let head = line.trim_start_matches("pub struct ").trim_start_matches("impl");
            let head = if head.starts_with('<') { head.split_once("> ").map_or("", |(_, rest)| rest) } else { head };
            let own = names(head).next().is_some_and(|name| types.contains(name));
            inside = own && !head.contains(" for ") && line.ends_with('{');
        } else if line.starts_with('}') {
            inside = false;
        }
        if !inside || !line.starts_with("    pub ") || line.starts_with("    pub(") {
            continue;
        }
        let hidden = lines[..index].iter().rev().take_while(|line| {
            let line = line.trim_start();
            line.starts_with("#[") || line.starts_with("///")
        });
        if hidden.clone().any(|line| line.contains("doc(hidden)")) {
            continue;
        }
        let is_field = !line.contains(" fn ") && !line.contains(" const ");
        let end = |line: &&str| is_field || line.ends_with('{') || line.ends_with(';') || line.ends_with('}');
        let last = (index..lines.len()).find(|at| end(&lines[*at])).unwrap_or(index);
        found.push((index + 1, lines[index..=last].join(" ")));
    }
    found
}

#[test]
fn every_type_of_the_surface_can_be_named() {
    let sources = files("engine/src", "rs");
    let public = public(&sources);
    let all: BTreeSet<&String> = public.values().flatten().collect();
    let known: BTreeSet<&str> = sources.iter().flat_map(declared).collect();
    let (mut complaints, mut seen) = (Vec::new(), 0);
    for file in &sources {
        let Some(types) = public.get(file.module()) else { continue };
        let reads_json = file.code().any(|line| line.contains("use serde_json::") && line.contains("Value"));
        for (line, signature) in signatures(file, types) {
            seen += 1;
            let foreign = signature.replace("wgpu::Queue", "");
            for name in names(&foreign).filter(|name| known.contains(name) && !all.contains(&(*name).to_owned())) {
                if !(name == "Value" && reads_json) {
                    complaints.push(format!("{}:{line}: `{name}` is hidden from apps", file.path));
                }
            }
        }
    }
    assert!(seen > 200, "only {seen} signatures found: is the search broken?");
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

/// The library has every name of the engine's root, and no module but those that apps see.
#[test]
fn the_library_has_the_names_of_the_engine() {
    let named = |path: &str| -> BTreeSet<String> {
        let file = files(path, "rs").into_iter().find(|file| file.module() == "lib").unwrap();
        let all = exports(&file.text).flat_map(|(_, names)| names);
        all.filter_map(|name| name.split_whitespace().last()).map(str::to_owned).collect()
    };
    let mut engine = named("engine/src");
    assert!(engine.len() > 80, "only {} names found: is the search broken?", engine.len());
    engine.extend(MODULES.map(str::to_owned));
    assert_eq!(named("src"), engine);
}
