//! Kimi K2 and Moonlight: a section of calls, each with an id that names the function. Moonlight's template has no
//! calls, and the templates of models that do not think have no thinking.

use super::{CallForm, Family, THINK, THINK_END};
use crate::text::tag::Tag;

pub(super) static FAMILY: Family = Family {
    name: "kimi",
    requires: &[&["<|im_middle|>"]],
    unless: &[],
    tags: &[
        THINK,
        THINK_END,
        (Tag::Section, "<|tool_calls_section_begin|>"),
        (Tag::SectionEnd, "<|tool_calls_section_end|>"),
        (Tag::Call, "<|tool_call_begin|>"),
        (Tag::Arguments, "<|tool_call_argument_begin|>"),
        (Tag::CallEnd, "<|tool_call_end|>"),
    ],
    calls: CallForm::Identified,
    caller: None,
    lead: "",
};
