//! The grammar of function calls in the form of a template's family, as `text/call` reads them.
//!
//! It is written as llguidance's Lark. A tag that is a token of the vocabulary is named by its id, and otherwise
//! spelled. Arguments must be valid against the function's JSON schema; unsupported parts of it are ignored, so that
//! the function stays callable. In GLM's form string arguments are verbatim, and all others JSON.

use super::exact;
use super::functions::{name, parameters};
use super::numbers::{Mark, Numbers};
use super::source::{BLANKS, Constraint, How, prepared};
use super::stack::with_stack;
use super::vocabulary::Grammar;
use crate::error::{Error, Result};
use crate::text::{CallForm, Family, Tag, Tokenizer};
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Whether a reply may, must or must not call functions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Calls {
    /// The model decides.
    #[default]
    Auto,
    /// No function is called. The functions stay in the prompt.
    None,
    /// At least one function is called, and there is no answer.
    Required,
    /// The function of this name is called once, and there is no answer.
    Function(String),
}

/// Its name in messages.
const KIND: &str = "functions";

/// The functions that a reply may call, and the form of a call.
#[derive(Clone, Copy)]
pub struct CallGrammar<'a> {
    /// The family, whose form it is.
    pub family: &'static Family,
    /// The functions, described in OpenAI's JSON.
    pub tools: &'a [Value],
    /// The vocabulary.
    pub tokenizer: &'a Tokenizer,
}

impl CallGrammar<'_> {
    /// What follows the opening of a call, up to its end.
    ///
    /// # Errors
    /// [`Error::Argument`] for a family without calls.
    pub fn body(&self) -> Result<Grammar> {
        with_stack(KIND, || {
            let mut rules = Rules::new(*self);
            let body = rules.bodies(self.tools)?;
            // The object of a call begins at once.
            rules.finish(&body, None, self.family.calls == CallForm::Object)
        })
    }

    /// Further calls, or none. `None` if nothing can follow a call.
    ///
    /// # Errors
    /// See [`CallGrammar::body`].
    pub fn more(&self) -> Result<Option<Grammar>> {
        with_stack(KIND, || {
            let mut rules = Rules::new(*self);
            let calls = rules.calls(self.tools, "*")?;
            if calls.is_empty() { Ok(None) } else { rules.finish(&calls, None, false).map(Some) }
        })
    }

    /// The whole answer: text that matches a constraint, calls, or either. `None` if it may be anything.
    ///
    /// # Errors
    /// [`Error::Argument`] for required calls without functions, of an unknown function, or in a family without calls.
    pub fn answer(&self, constraint: Option<&Constraint>, calls: &Calls) -> Result<Option<Grammar>> {
        with_stack(KIND, || self.answer_on_stack(constraint, calls))
    }

    fn answer_on_stack(&self, constraint: Option<&Constraint>, calls: &Calls) -> Result<Option<Grammar>> {
        let mut rules = Rules::new(*self);
        let expected = match calls {
            Calls::Auto if !self.tools.is_empty() => match constraint {
                None => return Ok(None),
                Some(constraint) => {
                    let calls = rules.calls(self.tools, "+")?;
                    let is_json = constraint.numbers().is_some();
                    return rules.finish(&format!("@{ANSWER} | {calls}"), Some(constraint), is_json).map(Some);
                }
            },
            Calls::Auto | Calls::None => {
                let alone = |constraint: &Constraint| {
                    let source = TopLevelGrammar { grammars: vec![constraint.named(ANSWER)?], max_tokens: None };
                    Ok(Grammar { source, kind: constraint.kind(), numbers: constraint.numbers() })
                };
                return constraint.map(alone).transpose();
            }
            Calls::Required if !self.tools.is_empty() => {
                let calls = rules.calls(self.tools, "+")?;
                return rules.finish(&calls, None, false).map(Some);
            }
            Calls::Required => "functions to call".to_owned(),
            Calls::Function(wanted) => {
                if let Some(tool) = self.tools.iter().find(|tool| name(tool) == *wanted) {
                    let call = rules.calls(std::slice::from_ref(tool), "")?;
                    return rules.finish(&call, None, false).map(Some);
                }
                format!("one of the functions {}", self.tools.iter().map(name).collect::<Vec<_>>().join(", "))
            }
        };
        let found = if let Calls::Function(wanted) = calls { format!("{wanted:?}") } else { "none".to_owned() };
        Err(Error::argument("calls", expected, found))
    }
}

/// The name of a constraint's grammar.
const ANSWER: &str = "answer";

/// Rules that are written one after the other.
pub(super) struct Rules<'a> {
    pub(super) of: CallGrammar<'a>,
    pub(super) text: String,
    count: usize,
    /// Whether an argument was left unconstrained because its rules would have become too long.
    pub(super) is_full: bool,
    /// The rules of the present function's references.
    pub(super) references: HashMap<String, String>,
    /// The rule of any text, once there is one.
    pub(super) any: Option<String>,
    /// The arguments in GLM's form by their names, and whether they are JSON in all functions.
    pub(super) arguments: HashMap<String, bool>,
}

impl<'a> Rules<'a> {
    fn new(of: CallGrammar<'a>) -> Self {
        // A line end may separate tags, and spaces the parts of JSON.
        let text = format!("NL: \"\\n\"\nBLANKS: /{BLANKS}/\n");
        Self { of, text, count: 0, is_full: false, references: HashMap::new(), any: None, arguments: HashMap::new() }
    }

    /// Adds a rule, and returns its name.
    pub(super) fn rule(&mut self, of: &str) -> String {
        self.count += 1;
        let name = format!("r{}", self.count);
        self.text += &format!("{name}: {of}\n");
        name
    }

    /// Adds a terminal, and returns its name.
    pub(super) fn terminal(&mut self, of: &str) -> String {
        self.count += 1;
        let name = format!("T{}", self.count);
        self.text += &format!("{name}: {of}\n");
        name
    }

    /// The grammar of these rules. `is_json` says that the text begins as JSON.
    fn finish(self, start: &str, constraint: Option<&Constraint>, is_json: bool) -> Result<Grammar> {
        let lark = format!("start: {start}\n{}", self.text);
        let mut grammars = vec![GrammarWithLexer::from_lark(lark)];
        grammars.extend(constraint.map(|constraint| constraint.named(ANSWER)).transpose()?);
        let kind = constraint.map_or(KIND, Constraint::kind);
        let family = self.of.family;
        let marks = match (family.calls, family.caller) {
            (CallForm::Object, Some(_)) => vec![(Mark::Json, Tag::RoleEnd)],
            (CallForm::Object, None) => vec![(Mark::Json, Tag::Call)],
            (CallForm::Named | CallForm::Identified, _) => vec![(Mark::Json, Tag::Arguments)],
            (CallForm::Keyed, _) => vec![
                (Mark::Key, Tag::Key),
                (Mark::KeyEnd, Tag::KeyEnd),
                (Mark::Value, Tag::Value),
                (Mark::ValueEnd, Tag::ValueEnd),
            ],
        };
        let marks = marks.into_iter().map(|(mark, tag)| (mark, family.text(tag))).collect();
        let of_json = self.arguments.into_iter().filter_map(|(name, is_json)| is_json.then_some(name)).collect();
        let of_tools = self.of.tools.iter().map(|tool| exact::longest(&parameters(tool)));
        let longest = of_tools.chain(constraint.map(Constraint::longest_number)).max().unwrap_or(0);
        let numbers = Some(Numbers::between(marks, of_json, is_json).with_longest(longest));
        Ok(Grammar { source: TopLevelGrammar { grammars, max_tokens: None }, kind, numbers })
    }

    /// A tag of the family; empty for a tag that it does not have.
    pub(super) fn tag(&self, tag: Tag) -> String {
        let text = self.of.family.text(tag);
        match self.of.tokenizer.special(text) {
            _ if text.is_empty() => String::new(),
            Some(token) => format!("<[{token}]>"),
            None => quoted(text),
        }
    }

    /// Calls, repeated by `count`: `+`, `*` or once. Empty if there can be none.
    fn calls(&mut self, tools: &[Value], count: &str) -> Result<String> {
        let body = self.bodies(tools)?;
        let family = self.of.family;
        let opening = match family.caller {
            Some(caller) => format!("{} {} {}", self.tag(Tag::MessageEnd), quoted(caller), self.tag(Tag::RoleEnd)),
            None => self.tag(Tag::Call),
        };
        // If nothing closes a call, none can follow.
        let ends = family.calls == CallForm::Object && family.text(Tag::CallEnd).is_empty();
        let count = match count {
            "+" if ends => "",
            "*" if ends => return Ok(String::new()),
            other => other,
        };
        let call = self.rule(&format!("{opening} {body}"));
        let calls = match count {
            "+" => format!("{call} (NL? {call})*"),
            "*" => format!("(NL? {call})*"),
            count => format!("{call}{count}"),
        };
        let calls = match (self.tag(Tag::Section), self.tag(Tag::SectionEnd)) {
            (open, close) if !open.is_empty() && count != "*" => format!("{open} NL? {calls} NL? {close}"),
            _ => calls,
        };
        Ok(self.rule(&calls))
    }

    /// What follows the opening of a call of one of these functions.
    fn bodies(&mut self, tools: &[Value]) -> Result<String> {
        let family = self.of.family;
        if !family.has_calls() {
            let (expected, found) =
                ("a model whose template has function calls", format!("the family {}", family.name));
            return Err(Error::argument("calls", expected, found));
        }
        let close = self.tag(Tag::CallEnd);
        let end = if close.is_empty() { String::new() } else { format!("NL? {close}") };
        let mut bodies = Vec::new();
        for tool in tools {
            let schema = parameters(tool);
            self.references.clear();
            let body = match family.calls {
                CallForm::Keyed => {
                    let arguments = self.keyed(&schema);
                    format!("{} NL? {arguments} {close}", quoted(name(tool)))
                }
                CallForm::Object => {
                    // The parser reads a call without arguments as one with an empty object.
                    let needed =
                        schema.get("required").and_then(Value::as_array).is_some_and(|names| !names.is_empty());
                    let count = if needed { "" } else { "?" };
                    let arguments = json_of(schema);
                    let name = quoted(&Value::from(name(tool)).to_string());
                    let [key, value] = ["name", "arguments"].map(|key| quoted(&format!("\"{key}\"")));
                    format!(
                        "NL? \"{{\" BLANKS? {key} BLANKS? \":\" BLANKS? {name} BLANKS? \
                         (\",\" BLANKS? {value} BLANKS? \":\" BLANKS? {arguments} BLANKS?){count} \"}}\" {end}"
                    )
                }
                CallForm::Named | CallForm::Identified => {
                    let (head, tag) = (self.head(name(tool)), self.tag(Tag::Arguments));
                    format!("{head} {tag} NL? {} {end}", json_of(schema))
                }
            };
            bodies.push(self.rule(&body));
        }
        Ok(self.rule(&bodies.join(" | ")))
    }

    /// What stands before the arguments of a function in a form where that is its name or an id.
    fn head(&self, name: &str) -> String {
        match self.of.family.calls {
            CallForm::Identified => format!("{} /[0-9]{{1,4}}/", quoted(&format!("functions.{name}:"))),
            _ => quoted(name),
        }
    }
}

/// JSON for a function's schema.
pub(super) fn json_of(schema: Value) -> String {
    // A schema without valid values, or that cannot be enforced at all, accepts anything.
    let prepared = prepared(schema, How::FUNCTION).or_else(|_| prepared(json!({}), How::FUNCTION));
    format!("%json {}", prepared.unwrap_or_else(|_| json!({})))
}

/// A text as a Lark string. The mark of exact numbers is escaped, since here it is an ordinary character.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f").replace(exact::MARK, "\\udbff\\udffd")
}
