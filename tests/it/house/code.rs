//! The sources as text.

use std::path::{Path, PathBuf};

/// A file below the repository's root.
pub struct File {
    /// From the root, with `/`.
    pub path: String,
    pub text: String,
}

/// Every file below `folder` with this extension, by path.
pub fn files(folder: &str, extension: &str) -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    walk(&root.join(folder), &mut found);
    found.retain(|path| path.extension().is_some_and(|e| e == extension));
    found.sort();
    assert!(!found.is_empty(), "no .{extension} files in {folder}");
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
        File { path: name, text: std::fs::read_to_string(&path).unwrap() }
    };
    found.into_iter().map(read).collect()
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { walk(&path, found) } else { found.push(path) }
    }
}

impl File {
    /// The module below its crate's root that the file belongs to: `gpu` for `engine/src/gpu/memory.rs`.
    pub fn module(&self) -> &str {
        let (_, inside) = self.path.split_once("src/").unwrap();
        inside.split('/').next().unwrap().trim_end_matches(".rs")
    }

    /// The lines that are not comments.
    pub fn code(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter(|line| !line.trim_start().starts_with("//"))
    }

    /// The names that follow a prefix in the code: `error` follows `crate::` in `crate::error::Error`.
    pub fn names_after(&self, prefix: &str) -> Vec<&str> {
        self.code().flat_map(|line| names_after(line, prefix)).collect()
    }

    /// The same, with all names of a statement that has a brace after the prefix.
    pub fn names_from(&self, prefix: &str) -> Vec<&str> {
        let brace = format!("{prefix}{{");
        let groups = self.text.split(brace.as_str()).skip(1).filter_map(|rest| rest.split(';').next());
        self.names_after(prefix).into_iter().chain(groups.flat_map(names)).collect()
    }
}

/// The sources of all crates.
pub fn sources() -> Vec<File> {
    ["engine/src", "command/src", "src"].into_iter().flat_map(|folder| files(folder, "rs")).collect()
}

fn in_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The names in a line.
pub fn names(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter| !in_name(letter)).filter(|name| !name.is_empty())
}

fn names_after<'a>(line: &'a str, prefix: &str) -> impl Iterator<Item = &'a str> {
    let whole = |at: usize| !line[..at].ends_with(|letter| in_name(letter) || letter == ':');
    let places = line.match_indices(prefix).filter(move |(at, _)| whole(*at));
    places.map(move |(at, found)| {
        let rest = &line[at + found.len()..];
        &rest[..rest.find(|letter| !in_name(letter)).unwrap_or(rest.len())]
    })
}

#[test]
fn names_are_found() {
    let text = "use crate::a::{b, c};\n// crate::d\n    /// crate::e\ncrate::g::h() $crate::i mycrate::j ::crate::k";
    let file = File { path: "src/a.rs".into(), text: text.into() };
    assert_eq!(file.names_after("crate::"), ["a", "g", "i"]);
    assert_eq!(file.names_from("crate::a::"), ["", "b", "c"]);
    assert_eq!(names("use crate::quant::{F16, Quant};").collect::<Vec<_>>(), ["use", "crate", "quant", "F16", "Quant"]);
}
