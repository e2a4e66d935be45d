//! The sources as text, and just enough of Rust's grammar to tell code from comments and strings.

use std::path::{Path, PathBuf};

/// A file below the repository's root.
pub struct File {
    /// From the root, with `/`.
    pub path: String,
    pub text: String,
}

/// A Rust file taken apart.
#[derive(Debug, Default, PartialEq)]
pub struct Parts {
    /// Without comments, and with every string empty.
    pub code: String,
    /// What stands between the quotes.
    pub strings: Vec<String>,
}

/// Every file below `folder` whose name ends in `.extension`, by path.
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
    /// The module below the crate's root that the file belongs to: `gpu` for `src/gpu/memory.rs`.
    pub fn module(&self) -> &str {
        let inside = self.path.strip_prefix("src/").unwrap();
        inside.split('/').next().unwrap().trim_end_matches(".rs")
    }

    pub fn parts(&self) -> Parts {
        Parts::of(&self.text)
    }
}

impl Parts {
    pub fn of(text: &str) -> Self {
        let mut parts = Self::default();
        let mut rest = text;
        while !rest.is_empty() {
            rest = parts.step(rest);
        }
        parts
    }

    /// Takes one comment, string, character or other letter off the front.
    fn step<'a>(&mut self, rest: &'a str) -> &'a str {
        if rest.starts_with("//") {
            return rest.find('\n').map_or("", |end| &rest[end..]);
        }
        if rest.starts_with("/*") {
            return rest.find("*/").map_or("", |end| &rest[end + 2..]);
        }
        if let Some(inside) = rest.strip_prefix('"') {
            return self.string(inside, string_end(inside), 1);
        }
        if rest.starts_with("r\"") || rest.starts_with("r#") {
            let hashes = rest[1..].bytes().take_while(|b| *b == b'#').count();
            if let Some(inside) = rest[1 + hashes..].strip_prefix('"') {
                let end = inside.find(&format!("\"{}", "#".repeat(hashes))).unwrap_or(inside.len());
                return self.string(inside, end, 1 + hashes);
            }
        }
        let taken = character(rest).unwrap_or_else(|| rest.chars().next().map_or(1, char::len_utf8));
        self.code.push_str(&rest[..taken]);
        &rest[taken..]
    }

    fn string<'a>(&mut self, inside: &'a str, end: usize, quotes: usize) -> &'a str {
        self.code.push_str("\"\"");
        self.strings.push(inside[..end].to_owned());
        inside.get(end + quotes..).unwrap_or_default()
    }

    /// Every whole word of the code.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
    }

    /// What follows `prefix` at each place where it starts a path: a name, or every name in braces.
    pub fn after(&self, prefix: &str) -> Vec<String> {
        let starts = |at: usize| !self.code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
        let places = self.code.match_indices(prefix).filter(|(at, _)| starts(*at));
        places.flat_map(|(at, _)| heads(&self.code[at + prefix.len()..])).collect()
    }
}

/// Where a string ends that starts at the front.
fn string_end(inside: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            b'"' if !escaped => return at,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    inside.len()
}

/// Bytes of the character literal at the front, if there is one rather than a lifetime.
fn character(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix('\'')?;
    let mut letters = inside.char_indices();
    let (_, first) = letters.next()?;
    let end = if first == '\\' { inside[2..].find('\'')? + 2 } else { letters.next()?.0 };
    inside[end..].starts_with('\'').then_some(end + 2)
}

/// The first name of a path, or of every path in the braces it starts with.
fn heads(path: &str) -> Vec<String> {
    let name = |path: &str| path.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let Some(list) = path.strip_prefix('{') else { return vec![name(path)] };
    let (mut depth, mut heads, mut start) = (1, Vec::new(), 0);
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => {
                heads.push(name(&list[start..at]));
                start = at + 1;
            }
            _ => {}
        }
        if depth == 0 {
            heads.push(name(&list[start..at]));
            break;
        }
    }
    heads.retain(|head| !head.is_empty());
    heads
}

#[test]
fn code_is_told_from_comments_and_strings() {
    let parts = Parts::of("a /* b */ \"c \\\" // d\" r#\"e\"f\"# '\"' 'x 'g' '\\'' '\\u{7f}' // h \"i\"\nj");
    assert_eq!(parts.strings, ["c \\\" // d", "e\"f"]);
    assert_eq!(parts.code, "a  \"\" \"\" '\"' 'x 'g' '\\'' '\\u{7f}' \nj");
}

#[test]
fn paths_are_found() {
    let parts = Parts::of("use crate::{a::{b, c}, d,\n e as f};\n crate::g::h() $crate::i mycrate::j ::crate::k");
    assert_eq!(parts.after("crate::"), ["a", "d", "e", "g", "i"]);
}
