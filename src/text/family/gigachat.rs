//! GigaChat 3.1: no thinking, and one call as JSON at the end of a message. Nothing closes it but the end of the JSON.

use super::{CallForm, Family};
use crate::text::tag::Tag;

pub(super) static FAMILY: Family = Family {
    name: "gigachat",
    told_by: &[&["<|function_call|>"], &["<|role_sep|>"]],
    unless: &[],
    tags: &[(Tag::Call, "<|function_call|>")],
    calls: CallForm::Object,
};
