//! GLM-4.5 and later: keys and values of calls between tags.

use super::{CallForm, Family, THINK, THINK_END};
use crate::text::tag::Tag;

pub(super) static FAMILY: Family = Family {
    name: "glm",
    requires: &[&["<arg_key>"]],
    unless: &[],
    tags: &[
        THINK,
        THINK_END,
        (Tag::Call, "<tool_call>"),
        (Tag::CallEnd, "</tool_call>"),
        (Tag::Key, "<arg_key>"),
        (Tag::KeyEnd, "</arg_key>"),
        (Tag::Value, "<arg_value>"),
        (Tag::ValueEnd, "</arg_value>"),
    ],
    calls: CallForm::Keyed,
    caller: None,
    lead: "",
};
