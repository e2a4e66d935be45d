//! Composes shaders of WGSL files that are laid end to end.
//!
//! A variant is a header of constants followed by whole files. A file that serves a weight in some role (`w`,
//! `w_gate`, `w_up`) names its globals `w_…`; composing it for another role renames them. Every line of the composed
//! text can be traced to the file that it comes from, so that a compiler's message names that file.

use super::Source;
use std::fmt;

/// The value of a constant in a variant's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Constant {
    /// A `u32`.
    U32(u32),
    /// The bits of a finite `f32`.
    F32(u32),
    /// A `bool`.
    Bool(bool),
}

impl fmt::Display for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U32(value) => write!(f, "{value}u"),
            Self::F32(bits) => write!(f, "{:e}f", f32::from_bits(*bits)),
            Self::Bool(value) => write!(f, "{value}"),
        }
    }
}

/// One file of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SourcePart {
    /// The file.
    pub source: Source,
    /// The role that replaces `w` in its names.
    pub role: &'static str,
}

/// One shader before compilation: its files and its constants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Variant {
    /// The label, which abbreviates the kernel, its formats and its constants: `mul_mv.q4_0.sg.r4w64`.
    pub label: String,
    /// The WGSL extensions, which are the first lines.
    pub enables: Vec<&'static str>,
    /// The constants of the header, in order.
    pub constants: Vec<(String, Constant)>,
    /// The files, in order.
    pub parts: Vec<SourcePart>,
}

impl Variant {
    /// The name of the kernel.
    pub fn kernel(&self) -> &str {
        self.label.split_once('.').map_or(self.label.as_str(), |(kernel, _)| kernel)
    }

    /// The WGSL text: the header, then every file once for each role.
    pub fn compose(&self) -> String {
        let mut text: String = self.enables.iter().map(|name| format!("enable {name};\n")).collect();
        for (name, value) in &self.constants {
            text.push_str(&format!("const {name} = {value};\n"));
        }
        for part in &self.parts {
            text.push_str(&renamed(part.source.text, part.role));
        }
        text
    }

    /// The size of its files in bytes, as an estimate of how long it takes to compile.
    pub fn length(&self) -> usize {
        self.parts.iter().map(|part| part.source.text.len()).sum()
    }

    /// The file and line (from 1) from which line `line` (from 1) of the composed text comes.
    pub fn origin(&self, line: usize) -> (&'static str, usize) {
        let header = self.enables.len() + self.constants.len();
        if line <= header {
            return ("constants", line);
        }
        let mut left = line - header;
        for part in &self.parts {
            let lines = part.source.text.lines().count();
            if left <= lines {
                return (part.source.path, left);
            }
            left -= lines;
        }
        ("end", left)
    }
}

/// `text` with the prefix `w_` of every identifier replaced by the role.
fn renamed(text: &str, role: &str) -> String {
    if role == "w" {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 64);
    let mut rest = text;
    let mut inside = false; // inside an identifier
    while let Some(c) = rest.chars().next() {
        if !inside && rest.starts_with("w_") {
            out.push_str(role);
            rest = &rest[1..];
            inside = true;
            continue;
        }
        inside = c.is_alphanumeric() || c == '_';
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Source = Source { path: "lib/a.wgsl", text: "fn w_a() {}\nfn new_a() { w_a(); }\n" };
    const SECOND: Source = Source { path: "op/b.wgsl", text: "fn b() {}\n" };

    fn variant(role: &'static str) -> Variant {
        Variant {
            label: "test".into(),
            enables: vec![],
            constants: vec![("N".into(), Constant::U32(4)), ("YES".into(), Constant::Bool(true))],
            parts: vec![SourcePart { source: FIRST, role }, SourcePart { source: SECOND, role: "w" }],
        }
    }

    #[test]
    fn a_role_renames_whole_identifiers_only() {
        let text = variant("gate").compose();
        assert_eq!(text, "const N = 4u;\nconst YES = true;\nfn gate_a() {}\nfn new_a() { gate_a(); }\nfn b() {}\n");
    }

    #[test]
    fn lines_are_traced_to_their_file() {
        let v = variant("w");
        assert_eq!(v.origin(2), ("constants", 2));
        assert_eq!(v.origin(4), ("lib/a.wgsl", 2));
        assert_eq!(v.origin(5), ("op/b.wgsl", 1));
    }
}
