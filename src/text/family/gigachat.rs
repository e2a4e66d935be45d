//! GigaChat: no thinking, and one call as JSON at the end of a reply. Nothing closes it but the end of the JSON. A tag
//! begins it in GigaChat 3.1. In 3.0 it is a message of its own behind that of the assistant.

use super::{CallForm, Family};
use crate::text::tag::Tag;

pub(super) static FAMILY: Family = Family {
    name: "gigachat",
    told_by: &[&["<|function_call|>"], &["<|role_sep|>"]],
    unless: &[],
    tags: &[(Tag::Call, "<|function_call|>")],
    calls: CallForm::Object,
    caller: None,
    lead: "",
};

/// GigaChat 3.0. Its tokens contain the line ends.
pub(super) static BY_MESSAGES: Family = Family {
    name: "gigachat-3.0",
    told_by: &[&["<|message_sep|>"], &["<|role_sep|>"], &["function call"]],
    unless: &["<|function_call|>"],
    tags: &[(Tag::MessageEnd, "<|message_sep|>\n\n"), (Tag::RoleEnd, "<|role_sep|>\n")],
    calls: CallForm::Object,
    caller: Some("function call"),
    lead: "",
};
