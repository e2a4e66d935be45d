//! Translates Metal's language to C++: puts kernels in namespaces, and adds what calls them.
//!
//! The shim does most of it, with macros for Metal's keywords. What remains: helpers that differ only in erased address
//! spaces are duplicates, and arguments come from numbered buffers and arrays.

use crate::clang::Memory;
use crate::emit::{Checks, Shader, USUAL};
use std::collections::HashSet;
use std::fmt::Write;

/// A kernel in Metal's language.
#[derive(Clone)]
pub struct Text {
    pub label: String,
    pub msl: String,
    size: u32,
}

/// The source before the parameters of the entry point, and after them.
const ENTRY: (&str, &str) = ("kernel void main_(\n", "\n) {");
/// Functions after this are compiled only where they are called.
const INLINED: &str =
    "_Pragma(\"clang attribute push(__attribute__((always_inline, internal_linkage)), apply_to = function)\")";
const POP: &str = "_Pragma(\"clang attribute pop\")";
/// A parameter in workgroup memory.
const THREADGROUP: &str = "threadgroup ";
const SPACES: [&str; 4] = ["device", "threadgroup", "constant", "thread"];
/// `machine::ARRAYS` of the shim.
const ARRAYS: usize = 32;

/// The source before the parameters of a kernel's entry point, the parameters, and the rest.
fn parts(msl: &str) -> Result<(&str, &str, &str), String> {
    let found = msl.split_once(ENTRY.0).and_then(|(before, rest)| {
        let (signature, rest) = rest.split_once(ENTRY.1)?;
        Some((before, signature, rest))
    });
    found.ok_or_else(|| "the entry is not where it was".to_owned())
}

impl Text {
    pub fn of(shader: &Shader) -> Result<Self, String> {
        let msl = shader.write(USUAL, Checks::Unchecked)?;
        Ok(Self { label: shader.label.clone(), msl, size: shader.workgroup_size })
    }

    /// The source to check with address spaces, or to run without them. Line numbers stay the same.
    fn body(&self, spaces: bool) -> String {
        let without_includes = self.msl.replace("#include", "//");
        if spaces { without_includes } else { without_duplicates(&without_includes) }
    }

    /// The parameters of the entry point, one per line.
    fn signature(&self) -> Result<&str, String> {
        parts(&self.msl).map(|(_, signature, _)| signature)
    }

    /// The C++ source without address spaces. If the compiler should assume that workgroup memory is not shared, the
    /// entry point's references to it are `__restrict` (see [`Memory::Noalias`]), and the functions that it calls are
    /// inlined, so that the assumption reaches all accesses.
    fn entry(&self, memory: Memory) -> Result<String, String> {
        let body = self.body(false);
        let (before, signature, rest) = parts(&body)?;
        let (helpers, attributes) = before.split_at(before.rfind('\n').map_or(0, |at| at + 1));
        let unshared = |line: &str| memory == Memory::Noalias && line.contains(THREADGROUP);
        let lines = signature.split_inclusive('\n');
        let signature: String = lines
            .map(|line| if unshared(line) { line.replace("& ", "& __restrict ") } else { line.to_owned() })
            .collect();
        Ok(format!("{INLINED} {helpers}{POP} {attributes}{}{signature}{}{rest}", ENTRY.0, ENTRY.1))
    }

    /// Registers the kernel with the machine.
    fn stub(&self) -> Result<String, String> {
        let mut call = Call::default();
        for parameter in self.signature()?.lines() {
            call.add(parameter.trim_start_matches([',', ' ']))?;
        }
        if call.arrays.len() > ARRAYS {
            return Err(format!("{} arrays in workgroup memory", call.arrays.len()));
        }
        let Call { arguments, mut arrays } = call;
        arrays.push("0".to_owned());
        let (label, size, arguments, arrays) = (&self.label, self.size, arguments.join(", "), arrays.join(", "));
        Ok(format!(
            "static void run(const machine::Invocation &i, void *const *buffers, void *const *arrays) \
             {{ main_({arguments}); }}\n\
             static machine::Kernel known(\"{label}\", run, {size}, {{{arrays}}});\n"
        ))
    }
}

/// The call of an entry point.
#[derive(Default)]
struct Call {
    arguments: Vec<String>,
    /// The sizes in bytes of the arrays in workgroup memory.
    arrays: Vec<String>,
}

impl Call {
    fn add(&mut self, parameter: &str) -> Result<(), String> {
        let (declared, attribute) = parameter.split_once("[[").unwrap_or((parameter, ""));
        let attribute = attribute.trim_end_matches("]]");
        let argument = match (declared.split_once('&'), attribute.strip_prefix("buffer(")) {
            (Some((ty, _)), Some(number)) => format!("*({ty}*)buffers[{}]", number.trim_end_matches(')')),
            (Some((ty, _)), None) => {
                self.arrays.push(format!("sizeof({ty})"));
                format!("*({ty}*)arrays[{}]", self.arrays.len() - 1)
            }
            (None, _) => builtin(attribute).ok_or_else(|| format!("an unknown parameter `{parameter}`"))?.to_owned(),
        };
        self.arguments.push(argument);
        Ok(())
    }
}

fn builtin(attribute: &str) -> Option<&'static str> {
    Some(match attribute {
        "threadgroup_position_in_grid" => "i.workgroup",
        "threadgroups_per_grid" => "i.workgroups",
        "thread_position_in_threadgroup" => "i.local",
        "thread_position_in_grid" => "i.global",
        "thread_index_in_threadgroup" => "i.index",
        "threads_per_simdgroup" => "machine::WIDTH",
        "thread_index_in_simdgroup" => "i.index % machine::WIDTH",
        "simdgroup_index_in_threadgroup" => "i.index / machine::WIDTH",
        "simdgroups_per_threadgroup" => "(i.size + machine::WIDTH - 1) / machine::WIDTH",
        _ => return None,
    })
}

/// Blanks out definitions that differ from earlier ones only in address spaces.
fn without_duplicates(msl: &str) -> String {
    let erased = |text: &str| SPACES.iter().fold(text.to_owned(), |text, space| text.replace(&format!("{space} "), ""));
    let mut seen = HashSet::new();
    let mut out = String::with_capacity(msl.len());
    for block in msl.split_inclusive("\n}\n") {
        let head = |at: &usize| block[*at..].starts_with(char::is_alphabetic);
        let start = block.rmatch_indices('\n').map(|(at, _)| at + 1).find(head).unwrap_or(0);
        let (before, definition) = block.split_at(start);
        out.push_str(before);
        if seen.insert(erased(definition)) {
            out.push_str(definition);
        } else {
            out.extend(definition.chars().filter(|c| *c == '\n'));
        }
    }
    out
}

/// One C++ file with all kernels, to be run.
pub fn runnable(texts: &[Text], memory: Memory) -> Result<String, String> {
    let mut out = String::from("#include \"metal_stdlib\"\n");
    for (index, text) in texts.iter().enumerate() {
        let (label, told) = (&text.label, |e| format!("{}: {e}", text.label));
        let (entry, stub) = (text.entry(memory).map_err(told)?, text.stub().map_err(told)?);
        write!(out, "namespace kernel_{index} {{\n#line 1 \"{label}\"\n{entry}\n{stub}}}\n").unwrap();
    }
    Ok(out)
}

/// The same to be checked, with address spaces.
pub fn checkable(texts: &[Text]) -> String {
    let mut out = String::from("#include \"metal_stdlib\"\n");
    for (index, text) in texts.iter().enumerate() {
        let (label, body) = (&text.label, text.body(true));
        write!(out, "namespace kernel_{index} {{\n#line 1 \"{label}\"\n{body}\n}}\n").unwrap();
    }
    out
}
