//! Hermes, whose form of calls Youtu-LLM, Kanana-2 and others adopted: JSON between two tags.

use super::{CallForm, Family, THINK, THINK_END};
use crate::text::tag::Tag;

pub(super) static FAMILY: Family = Family {
    name: "hermes",
    requires: &[&["<tool_call>"]],
    unless: &["<function="], // a form of calls without JSON
    tags: &[THINK, THINK_END, (Tag::Call, "<tool_call>"), (Tag::CallEnd, "</tool_call>")],
    calls: CallForm::Object,
    caller: None,
    lead: "",
};
