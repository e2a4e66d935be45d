//! The families of chat templates: the tags with which a model thinks and calls functions. The source of a template
//! determines its family; the model's name does not matter.
//!
//! A new family is a file with a `Family`, and an entry in `FAMILIES`.

mod deepseek;
mod gigachat;
mod glm;
mod hermes;
mod kimi;

use super::tag::Tag;

/// The form in which a model thinks and calls functions.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What the source of a template must contain: one of the texts of each group.
    requires: &'static [&'static [&'static str]],
    /// What it must not contain.
    unless: &'static [&'static str],
    /// The tags, and how they are written.
    pub(crate) tags: &'static [(Tag, &'static str)],
    /// The form of calls.
    pub(crate) calls: CallForm,
    /// The role of messages that are calls, where calls are messages of their own.
    pub(crate) caller: Option<&'static str>,
    /// What the template writes between the beginning of a reply and its text, but leaves to the model in a prompt.
    pub(crate) lead: &'static str,
}

/// The form of a call between the tags around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallForm {
    /// The name, then keys and values between tags of their own.
    Keyed,
    /// An object of JSON with a `name` and `arguments`.
    Object,
    /// The name, a tag, and the arguments as JSON.
    Named,
    /// The same with an id that contains the name.
    Identified,
}

/// All families. The first that matches a template is its family.
static FAMILIES: [&Family; 7] = [
    &glm::FAMILY,
    &kimi::FAMILY,
    &gigachat::FAMILY,
    &gigachat::BY_MESSAGES,
    &hermes::FAMILY,
    &deepseek::FAMILY,
    &deepseek::V3_1,
];

/// The tags of thinking, which all families with thinking share.
const THINK: (Tag, &str) = (Tag::Think, "<think>");
const THINK_END: (Tag, &str) = (Tag::ThinkEnd, "</think>");

impl Family {
    /// The family of a template, by its source; GLM's if none matches.
    pub fn of(template: &str) -> &'static Self {
        Self::known(template).unwrap_or_default()
    }

    /// The family of a template, by its source; `None` if none matches.
    pub fn known(template: &str) -> Option<&'static Self> {
        let contains = |text: &&str| template.contains(*text);
        let is = |family: &&&Self| {
            family.requires.iter().all(|group| group.iter().any(contains)) && !family.unless.iter().any(contains)
        };
        FAMILIES.iter().find(is).copied()
    }

    /// A notice that calls will not be found, if a template has functions in a form that no family has.
    pub(crate) fn notice(template: &str) -> Option<String> {
        let unknown = template.contains("tool_calls") && Self::known(template).is_none();
        let names: Vec<&str> = FAMILIES.iter().filter(|family| family.has_calls()).map(|family| family.name).collect();
        unknown.then(|| {
            format!(
                "function calls in replies are not recognized and stay text: the chat template writes calls in an unknown \
                 form (known: {})",
                names.join(", ")
            )
        })
    }

    /// Whether replies can have function calls.
    pub(crate) fn has_calls(&self) -> bool {
        !self.text(Tag::Call).is_empty() || self.caller.is_some()
    }

    /// How a tag is written; empty for a tag that the family does not have.
    pub(crate) fn text(&self, tag: Tag) -> &'static str {
        self.tags.iter().find(|(known, _)| *known == tag).map_or("", |(_, text)| text)
    }
}

impl Default for &'static Family {
    fn default() -> Self {
        &glm::FAMILY
    }
}
