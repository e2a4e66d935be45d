//! What a caller constrains a reply by.

use super::numbers::Numbers;
use super::schema::{Fault, for_each, open_unions};
use super::{check, depth, exact, finite, format, keywords, reference};
use crate::error::{Error, Result};
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

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
/// - schemas that consist of more than 250,000 once alternatives are merged with what stands beside them, and properties that
///   have more alternatives so;
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

/// Blanks between the parts of JSON, where they are allowed: one, or a line's end and what the next line begins with. Without a
/// limit a model may write blanks for ever.
pub(super) const BLANKS: &str = r" |\n[ \t]{0,20}";

/// How JSON by a schema is written, and how strictly the schema is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemaOptions {
    /// Whether blanks and line ends may stand between the parts of the JSON: one blank, or a line end and up to 20 blanks. Without
    /// it the JSON is compact, which takes fewer tokens.
    pub whitespace: bool,
    /// Whether keywords that cannot be held, or whose value has the wrong type, are left out instead of refused, and exactly one
    /// of several alternatives may be any of them. The answer may then not be valid by the schema.
    pub lenient: bool,
}

impl SchemaOptions {
    /// The same, with [`whitespace`](Self::whitespace) as given.
    #[must_use]
    pub fn with_whitespace(self, whitespace: bool) -> Self {
        Self { whitespace, ..self }
    }

    /// The same, with [`lenient`](Self::lenient) as given.
    #[must_use]
    pub fn with_lenient(self, lenient: bool) -> Self {
        Self { lenient, ..self }
    }

    /// A schema that carries these options.
    #[doc(hidden)]
    #[must_use]
    pub fn put_into(self, schema: Value) -> Value {
        let schema = if schema == Value::Bool(true) { json!({}) } else { schema };
        let mut own = Map::new();
        own.extend(self.whitespace.then(|| ("whitespace_pattern".to_owned(), BLANKS.into())));
        own.extend(self.lenient.then(|| ("lenient".to_owned(), true.into())));
        match schema {
            Value::Object(mut keywords) if !own.is_empty() => {
                if let Value::Object(given) = keywords.entry("x-guidance").or_insert_with(|| json!({})) {
                    own.extend(std::mem::take(given));
                    *given = own;
                }
                Value::Object(keywords)
            }
            other => other,
        }
    }
}

impl Constraint {
    /// JSON that is valid by a schema, without blanks between its parts: see [`Constraint::json_schema_with`] for others.
    /// Properties come in the order in which the schema has them. References lead into the schema itself: by JSON pointers, by
    /// anchors, or by the `$id` of a schema in it. llguidance's options can be given as `x-guidance`.
    ///
    /// What the schema says is held exactly, or the schema is refused: the guide lists all keywords, `docs/embedding.md`. A
    /// `format` that is not known is an annotation.
    ///
    /// Numbers are such that other programs read them. An integer without bounds gets those of its `format`, `int32`,
    /// `uint32`, `int64` or `uint64`, and otherwise lies within ±(2^53 - 1), which every program reads exactly. All other
    /// numbers have at most 20 digits, or 20 more than the longest number in the schema if that has more than 20, and an
    /// exponent of at most two. A `Value` has integers of more than 64 bits as doubles:
    /// a schema with longer numbers is better given as text ([`Constraint::json_schema_text`]).
    ///
    /// # Errors
    /// [`Error::Constraint`], with the path of the part of the schema that no value is valid by, that is not supported, or that
    /// is too deep, too large or too complex.
    pub fn json_schema(schema: Value) -> Result<Self> {
        Self::json_schema_with(schema, SchemaOptions::default())
    }

    /// The same, with options.
    ///
    /// # Errors
    /// As [`Constraint::json_schema`].
    pub fn json_schema_with(schema: Value, options: SchemaOptions) -> Result<Self> {
        Source::JsonSchema(options.put_into(schema)).try_into()
    }

    /// The same, of a schema as text, whose numbers keep all of their digits.
    ///
    /// # Errors
    /// As [`Constraint::json_schema`], and for a text that is no JSON.
    pub fn json_schema_text(text: &str, options: SchemaOptions) -> Result<Self> {
        let marked = exact::marked(text, &[]);
        let schema = serde_json::from_str(marked.as_deref().unwrap_or(text));
        let schema = schema.map_err(|error| Error::Constraint {
            kind: check::SCHEMA,
            place: String::new(),
            message: format!("it is not JSON: {error}"),
        })?;
        Self::json_schema_with(schema, options)
    }

    /// A body of JSON in which the numbers below these keys keep all of their digits, if that makes a difference: for a schema
    /// within it.
    #[doc(hidden)]
    pub fn keep_digits(text: &str, below: &[&str]) -> Option<String> {
        exact::marked(text, below)
    }

    /// A part of such a body as it was, but that long numbers are doubles: for answers that repeat it.
    #[doc(hidden)]
    pub fn repeated(part: &Value) -> Value {
        exact::unmarked(part)
    }

    /// The same, of a schema that another process has checked: the command's server has that done where it can be stopped.
    #[doc(hidden)]
    pub fn of_checked_schema(schema: Value) -> Self {
        Self(Source::JsonSchema(schema))
    }

    /// Whether a text is a whole answer by it, though it may be the beginning of a longer one: for a reply that was cut off.
    ///
    /// # Errors
    /// [`Error::Constraint`] if it is too complex.
    #[doc(hidden)]
    pub fn accepts(&self, text: &str) -> Result<bool> {
        check::accepts(self, text)
    }

    /// The same with blanks between the parts of JSON; `None` if it is not of JSON, or says itself where blanks may be.
    pub(crate) fn with_blanks(&self) -> Option<Self> {
        let Source::JsonSchema(schema) = &self.0 else { return None };
        let says = |own: &Value| own.get("whitespace_pattern").is_some() || own.get("whitespace_flexible").is_some();
        if schema.get("x-guidance").is_some_and(says) {
            return None;
        }
        let options = SchemaOptions::default().with_whitespace(true);
        Some(Self(Source::JsonSchema(options.put_into(schema.clone()))))
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
        matches!(self.0, Source::JsonSchema(_)).then(|| Numbers::of_json(self.longest_number()))
    }

    /// The most digits that a number in its answers may need.
    pub(super) fn longest_number(&self) -> usize {
        if let Source::JsonSchema(schema) = &self.0 { exact::longest(schema) } else { 0 }
    }

    /// The grammar, under a name.
    pub(super) fn named(&self, name: &str) -> Result<GrammarWithLexer> {
        let grammar = match &self.0 {
            Source::JsonSchema(schema) => json_grammar(schema.clone(), How::CHECKED)?,
            Source::Regex(expression) => GrammarWithLexer::from_regex(expression),
            Source::Lark(grammar) => GrammarWithLexer::from_lark(grammar.clone()),
        };
        Ok(GrammarWithLexer { name: Some(name.to_owned()), ..grammar })
    }
}

/// What a schema is made ready for.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    /// Whether its limits are checked.
    checks: bool,
    /// Whether it is a function's, of which not everything has to be supported, and which is written as the model writes calls.
    of_function: bool,
}

impl How {
    pub const NEW: Self = Self { checks: true, of_function: false };
    pub const CHECKED: Self = Self { checks: false, of_function: false };
    pub const FUNCTION: Self = Self { checks: false, of_function: true };
    pub const NEW_FUNCTION: Self = Self { checks: true, of_function: true };
}

/// The grammar of a JSON schema.
pub(super) fn json_grammar(schema: Value, how: How) -> Result<GrammarWithLexer> {
    match prepared(schema, how) {
        Ok(schema) => Ok(GrammarWithLexer::from_json_schema(schema)),
        Err(Fault { place, message }) => Err(check::fault(&place, &message)),
    }
}

/// A schema in the form that llguidance compiles: with its options, and with everything in the words of the keywords that it
/// holds exactly.
///
/// # Errors
/// For what cannot be held, what has no value, and what is too large, too deep or too complex.
pub(super) fn prepared(schema: Value, how: How) -> std::result::Result<Value, Fault> {
    let mut schema = if schema == Value::Bool(true) { json!({}) } else { schema };
    let whole = |message: String| Fault::new("#", message);
    if let Some(message) = depth::of_size(&schema) {
        return Err(whole(message));
    }
    if let Some(message) = exact::misused(&schema) {
        return Err(whole(message));
    }
    let given = schema.get("x-guidance").cloned().unwrap_or_else(|| json!({}));
    let Value::Object(given) = given else { return Err(whole("`x-guidance` is no object".to_owned())) };
    let lenient = how.of_function || given.get("lenient") == Some(&Value::Bool(true));
    keywords::tidy(&mut schema, lenient)?;
    reference::simplify(&mut schema, lenient)?;
    if let Some(fault) = how.checks.then(|| depth::of_schema(&schema)).flatten() {
        return Err(fault);
    }
    finite::prune(&mut schema)?;
    open_unions(&mut schema);
    exact::hold_numbers(&mut schema, lenient)?;
    for_each(&mut schema, &mut format::hold);
    let blanks = match how.of_function {
        true => json!({"whitespace_pattern": BLANKS}),
        false => json!({"whitespace_flexible": false}),
    };
    let mut options = blanks.as_object().cloned().unwrap_or_default();
    if lenient {
        options.extend(["lenient", "coerce_one_of"].map(|key| (key.to_owned(), true.into())));
    }
    options.extend(given);
    if let Value::Object(keywords) = &mut schema {
        keywords.insert("x-guidance".to_owned(), Value::Object(options));
    }
    Ok(schema)
}

/// A grammar that stands alone.
pub(super) fn alone(grammar: GrammarWithLexer) -> TopLevelGrammar {
    TopLevelGrammar { grammars: vec![grammar], max_tokens: None }
}
