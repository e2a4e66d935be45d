//! What a caller constrains a reply by.

use super::check;
use super::numbers::{Numbers, bound_integers};
use super::schema::open_unions;
use crate::error::{Error, Result};
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What the answer of a reply has to match: see [`GenerateOptions::constraint`](crate::GenerateOptions::constraint).
///
/// It is checked when it is made, without a model: whether it can be understood, and whether any text matches it.
///
/// # Limits
///
/// Schemas and grammars may come from strangers, so stack, memory and time are bounded. It is compiled on a thread with a
/// stack of 32 MiB, whatever that of the caller. Refused are:
///
/// - schemas of more than 200,000 values, or 4 MiB of names and strings; nested more than 200 levels deep, or 150 levels of
///   schemas within one another, those included that are referred to; with more than 1000 alternatives in a `oneOf`;
/// - more than 1000 properties of one object, those included that `allOf`, `$ref` and the like add to it; more than 60 beside
///   `minProperties` or `maxProperties`; objects of which the squares of these numbers add up to more than 3,000,000;
/// - strings for which expressions hold together by which a text may go on in more than 100,000 ways, or all such strings
///   together in more than 500,000: the ways of an expression are the character classes and letters in it that have a character
///   in common, and those of several are multiplied;
/// - schemas that consist of more than 250,000 once alternatives are merged with what stands beside them;
/// - expressions of more than 64 KiB or 4000 backslashes, and grammars of more than 256 KiB.
///
/// While a reply is written, a token's mask takes 200,000 steps of expressions and 50,000 items of rules at most. A reply
/// whose grammar takes more than 32 MiB, or 8,000,000 items of rules, ends with [`Error::Constraint`].
///
/// ```
/// use wglm::{Constraint, serde_json::json};
///
/// let person = Constraint::json_schema(json!({
///     "type": "object",
///     "properties": {"name": {"type": "string", "maxLength": 40}, "age": {"type": "integer", "minimum": 0}},
///     "required": ["name", "age"],
///     "additionalProperties": false,
/// }))?;
/// let date = Constraint::regex(r"\d{4}-\d{2}-\d{2}")?;
/// assert_ne!(person, date);
/// let wrong = Constraint::json_schema(json!({"type": "object", "properties": {
///     "age": {"type": "integer", "minimum": 5, "maximum": 4},
/// }, "required": ["age"]}));
/// assert!(wrong.unwrap_err().to_string().contains("#/properties/age"));
/// # Ok::<(), wglm::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Source", into = "Source")]
pub struct Constraint(Source);

/// The kinds of constraints, as they are serialized.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Source {
    JsonSchema(Value),
    Regex(String),
    Lark(String),
}

impl TryFrom<Source> for Constraint {
    type Error = Error;

    fn try_from(source: Source) -> Result<Self> {
        match &source {
            Source::JsonSchema(schema) => check::json_schema(schema)?,
            Source::Regex(expression) => check::regex(expression)?,
            Source::Lark(grammar) => check::lark(grammar)?,
        }
        Ok(Self(source))
    }
}

impl From<Constraint> for Source {
    fn from(constraint: Constraint) -> Self {
        constraint.0
    }
}

/// Blanks between the parts of JSON: one, or a line's end and what the next line begins with. Without a limit a model may
/// write blanks for ever.
pub(crate) const BLANKS: &str = r" |\n[ \t]{0,20}";

impl Constraint {
    /// JSON that is valid by a schema. Properties come in the order in which the schema has them. The schema may have its
    /// parts in `$defs`; references to other documents are not looked up. llguidance's options can be given as
    /// `x-guidance`.
    ///
    /// Numbers are such that other programs read them. An integer without bounds gets those of its `format`, `int32`,
    /// `uint32`, `int64` or `uint64`, and otherwise lies within ±(2^53 - 1), which every program reads exactly. All other
    /// numbers have at most 20 digits and an exponent of at most two.
    ///
    /// # Errors
    /// [`Error::Constraint`], with the path of the part of the schema that no value is valid by, that is not supported, or that
    /// is too deep, too large or too complex.
    pub fn json_schema(schema: Value) -> Result<Self> {
        Source::JsonSchema(schema).try_into()
    }

    /// The same, of a schema that another process has checked: the command's server has that done where it can be stopped.
    #[doc(hidden)]
    pub fn of_checked_schema(schema: Value) -> Self {
        Self(Source::JsonSchema(schema))
    }

    /// Any object of JSON, with numbers as by [`Constraint::json_schema`].
    pub fn json_object() -> Self {
        Self(Source::JsonSchema(json!({"type": "object"})))
    }

    /// Text that a regular expression matches from its beginning to its end, in the syntax of Rust's crate `regex`
    /// without look-around and word boundaries.
    ///
    /// # Errors
    /// [`Error::Constraint`] for an expression that is malformed, too long, or matches nothing.
    pub fn regex(expression: &str) -> Result<Self> {
        Source::Regex(expression.to_owned()).try_into()
    }

    /// Text by a grammar in llguidance's variant of Lark's syntax, which begins with the rule `start`.
    ///
    /// # Errors
    /// [`Error::Constraint`] for a grammar that is malformed, with the line, or too deep, too large or too complex.
    pub fn lark(grammar: &str) -> Result<Self> {
        Source::Lark(grammar.to_owned()).try_into()
    }

    /// What the kind is called in messages.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.0 {
            Source::JsonSchema(_) => check::SCHEMA,
            Source::Regex(_) => check::REGEX,
            Source::Lark(_) => check::LARK,
        }
    }

    /// Where its numbers are, if it is of JSON.
    pub(super) fn numbers(&self) -> Option<Numbers> {
        matches!(self.0, Source::JsonSchema(_)).then(Numbers::of_json)
    }

    /// The grammar, under a name.
    pub(super) fn named(&self, name: &str) -> GrammarWithLexer {
        let grammar = match &self.0 {
            Source::JsonSchema(schema) => json_grammar(schema.clone()),
            Source::Regex(expression) => GrammarWithLexer::from_regex(expression),
            Source::Lark(grammar) => GrammarWithLexer::from_lark(grammar.clone()),
        };
        GrammarWithLexer { name: Some(name.to_owned()), ..grammar }
    }
}

/// The grammar of a JSON schema.
pub(super) fn json_grammar(schema: Value) -> GrammarWithLexer {
    GrammarWithLexer::from_json_schema(with_options(schema, json!({"whitespace_pattern": BLANKS})))
}

/// A schema with llguidance's options, unless it has its own, with bounds for its integers, and with alternatives as
/// llguidance knows them.
pub(super) fn with_options(mut schema: Value, options: Value) -> Value {
    if schema == Value::Bool(true) {
        schema = json!({});
    }
    open_unions(&mut schema);
    bound_integers(&mut schema);
    if let Value::Object(parts) = &mut schema {
        parts.entry("x-guidance").or_insert(options);
    }
    schema
}

/// llguidance's options for the schema of a function, of which not everything has to be supported.
pub(super) fn lenient() -> Value {
    json!({"whitespace_pattern": BLANKS, "lenient": true, "coerce_one_of": true})
}

/// A grammar that stands alone.
pub(super) fn alone(grammar: GrammarWithLexer) -> TopLevelGrammar {
    TopLevelGrammar { grammars: vec![grammar], max_tokens: None }
}
