//! DeepSeek-V2: neither thinking nor calls.

use super::{CallForm, Family};

pub(super) static FAMILY: Family = Family {
    name: "deepseek",
    told_by: &[&["User: "], &["Assistant:"]],
    unless: &["<think>", "<tool", "<｜tool"],
    tags: &[],
    calls: CallForm::Object,
    caller: None,
};
