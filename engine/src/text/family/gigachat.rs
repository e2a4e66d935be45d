//! GigaChat: no thinking, and one call as JSON at the end of a reply. Only the end of the JSON closes it. In GigaChat
//! 3.1 it begins with a tag; in 3.0 it is a message of its own after the assistant's.

use super::{CallForm, Family};
use crate::text::tag::Tag;

pub(super) static FAMILY: Family = Family {
    name: "gigachat",
    requires: &[&["<|function_call|>"], &["<|role_sep|>"]],
    unless: &[],
    tags: &[(Tag::Call, "<|function_call|>")],
    calls: CallForm::Object,
    caller: None,
    lead: "",
};

/// GigaChat 3.0. Its tokens contain the line ends.
pub(super) static BY_MESSAGES: Family = Family {
    name: "gigachat-3.0",
    requires: &[&["<|message_sep|>"], &["<|role_sep|>"], &["function call"]],
    unless: &["<|function_call|>"],
    tags: &[(Tag::MessageEnd, "<|message_sep|>\n\n"), (Tag::RoleEnd, "<|role_sep|>\n")],
    calls: CallForm::Object,
    caller: Some("function call"),
    lead: "",
};
