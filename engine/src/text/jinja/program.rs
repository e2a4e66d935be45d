//! Compiles a template to instructions that count their costs.
//!
//! The engine lets us replace filters and functions, but not operators, loops and variables. So the instructions that
//! it compiles are rewritten: a counting filter of [`operators`](super::operators) is inserted before each instruction
//! whose cost depends on its operands. The engine's own instructions stay the same, at the same lines.
//!
//! This uses the engine's unstable interface, which is why its version is pinned.

use super::{bounds, syntax};
use minijinja::machinery::{CompiledTemplate, Instruction as I, Instructions, TemplateConfig};
use minijinja::{AutoEscape, Error, Value};
use std::collections::HashSet;
use std::sync::Arc;

/// The name of the template, which errors mention.
const NAME: &str = "chat_template";

/// The flag of a recursive loop.
const RECURSIVE: u8 = 2;

/// The largest constant that costs nothing to compare with, in bytes.
const SHORT: usize = 64;

/// Compiles a source.
pub fn compile(source: &str) -> Result<CompiledTemplate<'_>, Error> {
    bounds::check(source)?;
    let config = TemplateConfig { syntax_config: syntax()?, default_auto_escape: Arc::new(|_| AutoEscape::None) };
    let mut compiled = CompiledTemplate::new(NAME, source, &config)?;
    compiled.instructions = counted(&compiled.instructions);
    for block in compiled.blocks.values_mut() {
        *block = counted(block);
    }
    Ok(compiled)
}

/// The same instructions, with the counting ones inserted.
fn counted<'s>(old: &Instructions<'s>) -> Instructions<'s> {
    let all: Vec<&I<'s>> = (0..).map_while(|index| old.get(index)).collect();
    let targets: HashSet<u32> =
        all.iter().filter_map(|instruction| target(&mut (*instruction).clone()).copied()).collect();
    let (mut starts, mut new) = (Vec::with_capacity(all.len() + 1), Vec::with_capacity(2 * all.len()));
    for (index, instruction) in all.iter().enumerate() {
        starts.push(new.len() as u32);
        // At the target of a jump the previous instruction need not have run.
        let before =
            (!targets.contains(&(index as u32))).then(|| index.checked_sub(1)).flatten().map(|before| all[before]);
        let both = index.checked_sub(2).map(|first| (all[first], all[first + 1]));
        let item = matches!(both, Some((I::PushLoop(flags), I::Iterate(_))) if flags & RECURSIVE == 0);
        let parts = if item { vec![(*instruction).clone()] } else { parts(instruction, before) };
        new.extend(parts.into_iter().map(|part| (part, index as u32)));
    }
    starts.push(new.len() as u32);
    let mut instructions = Instructions::new(old.name(), old.source());
    for (mut instruction, index) in new {
        if let Some(target) = target(&mut instruction)
            && let Some(start) = starts.get(*target as usize)
        {
            *target = *start;
        }
        match (old.get_span(index), old.get_line(index)) {
            (Some(span), _) => instructions.add_with_span(instruction, span),
            (None, Some(line)) => instructions.add_with_line(instruction, line as u16),
            (None, None) => instructions.add(instruction),
        };
    }
    instructions
}

/// The target of a jump.
fn target<'a>(instruction: &'a mut I<'_>) -> Option<&'a mut u32> {
    match instruction {
        I::Iterate(target)
        | I::Jump(target)
        | I::JumpIfFalse(target)
        | I::JumpIfFalseOrPop(target)
        | I::JumpIfTrueOrPop(target)
        | I::BuildMacro(_, target, _) => Some(target),
        _ => None,
    }
}

/// The most arguments of a macro, which are collected in a list at every request.
const MACRO: usize = 100;

/// What an instruction is replaced with. `before` is the one that ran before it, if that is certain.
fn parts<'s>(instruction: &I<'s>, before: Option<&I<'s>>) -> Vec<I<'s>> {
    let same = instruction.clone();
    let constant = match before {
        Some(I::LoadConst(value)) => Some(value),
        _ => None,
    };
    let (number, short) = (constant.is_some_and(Value::is_number), constant.is_some_and(is_short));
    match instruction {
        I::EmitRaw(text) => vec![I::LoadConst((*text).into()), I::Emit],
        I::StringConcat => vec![filter("~", 2)],
        I::Add if number => vec![same],
        I::Add => [checked("check+", 2), vec![same, filter("made", 1)]].concat(),
        I::Mul => [checked("check*", 2), vec![same, filter("made", 1)]].concat(),
        I::Slice => [checked("check[:]", 4), vec![same, filter("made", 1)]].concat(),
        I::Eq | I::Ne | I::Gt | I::Gte | I::Lt | I::Lte if short => vec![same],
        // The needle of a search in a string is converted to a string.
        I::In if short && constant.is_some_and(|value| value.as_str().is_none()) => vec![same],
        I::Eq | I::Ne | I::Gt | I::Gte | I::Lt | I::Lte => [checked("check==", 2), vec![same]].concat(),
        I::In | I::CompareAndPreserve(_) => [checked("check-in", 2), vec![same]].concat(),
        I::GetItem if short && constant.is_some_and(is_near) => vec![same],
        I::GetItem => [checked("check[]", 2), vec![same]].concat(),
        I::BuildMap(count) if *count > 0 => [checked("check{}", 2 * count), vec![same]].concat(),
        I::PushLoop(_) => vec![filter("loop", 1), same],
        I::StoreLocal(_) if short => vec![same],
        I::StoreLocal(_) => vec![filter("keep", 1), same],
        I::SetAttr(_) => vec![I::Swap, filter("keep-in-namespace", 1), I::Swap, same],
        I::UnpackLists(_) => vec![filter("refuse-splat", 1)],
        I::MergeKwargs(count) => [checked("check**", *count), vec![same]].concat(),
        I::CallMethod("changed", Some(count)) => [checked("check-changed", (*count).into()), vec![same]].concat(),
        I::CallMethod("cycle", Some(1)) => vec![filter("refuse-cycle", 1)],
        I::FastRecurse | I::CallFunction(_, Some(1)) => [checked("check-read", 1), vec![same]].concat(),
        I::BuildMacro(..) if constant.and_then(Value::len).is_some_and(|len| len > MACRO) => {
            vec![filter("refuse-macro", 1)]
        }
        I::Enclose(_) => vec![I::LoadConst(Value::UNDEFINED), filter("closure", 1), I::DiscardTop, same],
        I::Include(_) | I::LoadBlocks => vec![filter("check-name", 1), same],
        _ => vec![same],
    }
}

fn filter<'s>(name: &'static str, count: u16) -> I<'s> {
    // Filters with this number are not cached by number; there are few numbers.
    I::ApplyFilter(name, Some(count), !0)
}

/// Instructions that pass the last `count` values through a filter unchanged: the filter gets them as a tuple and
/// returns it reversed, because unpacking reverses it again.
fn checked<'s>(name: &'static str, count: usize) -> Vec<I<'s>> {
    vec![I::BuildTuple(Some(count)), filter(name, 1), I::UnpackList(count)]
}

/// Whether an index names one of the first items, or a key.
fn is_near(index: &Value) -> bool {
    index.as_i64().is_none_or(|index| (0..SHORT as i64).contains(&index))
}

/// Whether a constant is a number, a short string or the like, or a short list of those.
fn is_short(value: &Value) -> bool {
    match (value.as_str(), value.as_object()) {
        (Some(text), _) => text.len() <= SHORT,
        (None, None) => true,
        (None, Some(_)) => {
            value.len().is_some_and(|len| len <= SHORT)
                && value.try_iter().is_ok_and(|mut items| {
                    items.all(|item| item.as_object().is_none() && item.as_str().is_none_or(|text| text.len() <= SHORT))
                })
        }
    }
}
