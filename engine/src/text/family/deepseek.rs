//! DeepSeek-V2: neither thinking nor calls.
//!
//! Its template writes `Assistant: ` before a reply, but ends a prompt with `Assistant:`. So the model itself writes
//! the space, and the space is not part of the reply: otherwise the next prompt would contain two.

use super::{CallForm, Family};

pub(super) static FAMILY: Family = Family {
    name: "deepseek",
    requires: &[&["User: "], &["Assistant:"]],
    unless: &["<think>", "<tool", "<｜tool"],
    tags: &[],
    calls: CallForm::Object,
    caller: None,
    lead: " ",
};
