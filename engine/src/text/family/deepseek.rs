//! DeepSeek-V2 has neither thinking nor calls. DeepSeek-V3.1 has both: a section of calls, each with the function's
//! name before its arguments. The calls of DeepSeek-V3 and R1 have the same tags, but a block of JSON in a fence, and
//! are not read.
//!
//! DeepSeek-V2's template writes `Assistant: ` before a reply, but ends a prompt with `Assistant:`. So the model itself
//! writes the space, and the space is not part of the reply: otherwise the next prompt would contain two.

use super::{CallForm, Family, THINK, THINK_END};
use crate::text::tag::Tag;

pub(super) static FAMILY: Family = Family {
    name: "deepseek",
    requires: &[&["User: "], &["Assistant:"]],
    unless: &["<think>", "<tool", "<｜tool"],
    tags: &[],
    calls: CallForm::Object,
    caller: None,
    lead: " ",
};

/// DeepSeek-V3.1.
pub(super) static V3_1: Family = Family {
    name: "deepseek-v3.1",
    requires: &[&["<｜tool▁call▁begin｜>"], &["<｜tool▁sep｜>"]],
    unless: &["```json"], // around the arguments in the other form
    tags: &[
        THINK,
        THINK_END,
        (Tag::Section, "<｜tool▁calls▁begin｜>"),
        (Tag::SectionEnd, "<｜tool▁calls▁end｜>"),
        (Tag::Call, "<｜tool▁call▁begin｜>"),
        (Tag::Arguments, "<｜tool▁sep｜>"),
        (Tag::CallEnd, "<｜tool▁call▁end｜>"),
    ],
    calls: CallForm::Named,
    caller: None,
    lead: "",
};
