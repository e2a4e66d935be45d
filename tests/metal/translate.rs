//! From Metal's language to C++: namespaces around kernels, and what calls them.
//!
//! Most of it is left to the shim, in which Metal's words are macros. What remains: with address spaces erased, helpers
//! that differ in nothing else are one and the same; and arguments come from numbered buffers and arrays.

use crate::clang::Memory;
use crate::emit::{Checks, Shader, USUAL};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write;

/// A kernel in Metal's language.
#[derive(Clone)]
pub struct Text {
    pub label: String,
    pub msl: String,
    size: u32,
}

/// What stands before the parameters of the entry, and behind them.
const ENTRY: (&str, &str) = ("kernel void main_(\n", "\n) {");
/// A parameter in workgroup memory.
const THREADGROUP: &str = "threadgroup ";
const SPACES: [&str; 4] = ["device", "threadgroup", "constant", "thread"];
/// `machine::ARRAYS` of the shim.
const ARRAYS: usize = 32;

impl Text {
    pub fn of(shader: &Shader) -> Result<Self, String> {
        let msl = shader.write(USUAL, Checks::Unchecked)?;
        Ok(Self { label: shader.label.clone(), msl, size: shader.workgroup_size })
    }

    /// For clang to check with address spaces, or to run without them. Lines keep their numbers.
    fn body(&self, spaces: bool) -> String {
        let without_includes = self.msl.replace("#include", "//");
        if spaces { without_includes } else { without_twins(&without_includes) }
    }

    /// The parameters of the entry, a line each.
    fn signature(&self) -> Result<&str, String> {
        let signature = self.msl.split_once(ENTRY.0).and_then(|(_, rest)| rest.split_once(ENTRY.1));
        signature.map(|(signature, _)| signature).ok_or_else(|| "the entry is not where it was".to_owned())
    }

    /// The same kernel with its helpers inlined, so that nothing stands between the entry's references to workgroup
    /// memory, which nobody else uses, and what is done with them.
    fn noalias(&self) -> Result<Self, String> {
        let signature = self.signature()?;
        let alone = signature
            .split_inclusive('\n')
            .map(|line| if line.contains(THREADGROUP) { line.replace("& ", "& __restrict ") } else { line.to_owned() });
        let entry = [ENTRY.0, signature, ENTRY.1].concat();
        let alone = ["_Pragma(\"clang attribute pop\") ", ENTRY.0, &alone.collect::<String>(), ENTRY.1].concat();
        let inlined = "_Pragma(\"clang attribute push(__attribute__((always_inline)), apply_to = function)\") ";
        Ok(Self { msl: [inlined, &self.msl.replacen(&entry, &alone, 1)].concat(), ..self.clone() })
    }

    fn for_memory(&self, memory: Memory) -> Result<Cow<'_, Self>, String> {
        match memory {
            Memory::Shared => Ok(Cow::Borrowed(self)),
            Memory::Noalias => self.noalias().map(Cow::Owned),
        }
    }

    /// What makes the kernel known to the machine.
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
            "void run(const machine::Invocation &i, void *const *buffers, void *const *arrays) {{ main_({arguments}); }}\n\
             machine::Kernel known(\"{label}\", run, {size}, {{{arrays}}});\n"
        ))
    }
}

/// The call of an entry.
#[derive(Default)]
struct Call {
    arguments: Vec<String>,
    /// Bytes of the arrays in workgroup memory.
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

/// Blanks out definitions that are like earlier ones but for address spaces.
fn without_twins(msl: &str) -> String {
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

/// One file of C++ with all kernels, to be run.
pub fn runnable(texts: &[Text], memory: Memory) -> Result<String, String> {
    let mut out = String::from("#include \"metal_stdlib\"\n");
    for (index, text) in texts.iter().enumerate() {
        let stub = text.stub().map_err(|e| format!("{}: {e}", text.label))?;
        let (label, body) = (&text.label, text.for_memory(memory)?.body(false));
        write!(out, "namespace kernel_{index} {{\n#line 1 \"{label}\"\n{body}\n{stub}}}\n").unwrap();
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
