//! The constraints that a caller can set on a reply.

use super::numbers::Numbers;
use super::schema::{Fault, for_each, open_unions};
use super::{check, closed, depth, exact, finite, format, keywords, reference};
use crate::error::{Error, Result};
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// A constraint that an answer must match: see [`GenerateOptions::constraint`](crate::GenerateOptions::constraint).
///
/// It is checked on construction, without a model: whether it is well-formed, and whether any text matches it.
///
/// # Limits
///
/// Schemas and grammars may come from untrusted sources, so stack, memory and time are bounded. Compilation runs on a
/// thread with a stack of 32 MiB, independent of the caller's. These are refused:
///
/// - schemas with more than 200,000 values, or 4 MiB of names and strings; more than 200 levels of nesting, or 150
///   levels of nested schemas, including references; more than 1000 alternatives in a `oneOf`;
/// - more than 1000 properties of one object, including those added by `allOf`, `$ref` and the like; more than 60 with
///   `minProperties` or `maxProperties`; objects whose squared property counts add up to more than 3,000,000;
/// - strings with several expressions that together allow more than 100,000 ways to continue a text, or more than
///   500,000 for all such strings: the ways of an expression are its character classes and letters that share a
///   character, and those of several expressions are multiplied;
/// - schemas that become more than 250,000 schemas once alternatives are merged with adjacent keywords, and properties
///   with that many alternatives;
/// - expressions with more than 64 KiB or 4000 backslashes, and grammars with more than 256 KiB.
///
/// During a reply, a token's mask takes at most 200,000 steps of expressions and 50,000 items of rules. A reply whose
/// grammar takes more than 32 MiB, or 8,000,000 items of rules, ends with [`Error::Constraint`].
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
/// let date = Constraint::regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")?;
/// assert_ne!(person, date);
/// let wrong = Constraint::json_schema(json!({"type": "object", "properties": {
///     "age": {"type": "integer", "minimum": 5, "maximum": 4},
/// }, "required": ["age"]}));
/// assert!(wrong.unwrap_err().to_string().contains("#/properties/age"));
/// # Ok::<(), wglm::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ConstraintText", into = "ConstraintText")]
pub struct Constraint(ConstraintText);

/// The kinds of constraints in serialized form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ConstraintText {
    JsonSchema(Value),
    Regex(String),
    Lark(String),
}

impl TryFrom<ConstraintText> for Constraint {
    type Error = Error;

    fn try_from(source: ConstraintText) -> Result<Self> {
        match &source {
            ConstraintText::JsonSchema(schema) => check::json_schema(schema)?,
            ConstraintText::Regex(expression) => check::regex(expression)?,
            ConstraintText::Lark(grammar) => check::lark(grammar)?,
        }
        Ok(Self(source))
    }
}

impl From<Constraint> for ConstraintText {
    fn from(constraint: Constraint) -> Self {
        constraint.0
    }
}

/// Whitespace between the parts of JSON, if it is allowed: a space, or a line end and indentation. Without a limit a
/// model may write spaces forever.
pub(super) const BLANKS: &str = r" |\n[ \t]{0,20}";

/// wglm's own option in `x-guidance`: see [`SchemaOptions::closed`].
const CLOSED: &str = "closed";

/// Whether a schema carries the option that closes its objects.
pub(super) fn is_closed(schema: &Value) -> bool {
    schema.get("x-guidance").and_then(|options| options.get(CLOSED)) == Some(&Value::Bool(true))
}

/// How JSON is written, and how strictly its schema is enforced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemaOptions {
    /// Whether whitespace may separate the parts of the JSON: one space, or a line end and up to 20 spaces. Otherwise
    /// the JSON is compact, which takes fewer tokens.
    pub whitespace: bool,
    /// Whether keywords that cannot be enforced, or whose value has the wrong type, are ignored instead of refused, and
    /// `oneOf` is treated as `anyOf`. The answer may then be invalid against the schema.
    pub lenient: bool,
    /// Whether objects whose properties the schema names have no others, unless it allows some with
    /// `additionalProperties`, `unevaluatedProperties` or `patternProperties`. Schemas that apply to the same object
    /// (`allOf` and the like) allow the properties of each other. Otherwise a model may add properties without end.
    pub closed: bool,
}

impl SchemaOptions {
    /// The same options with this [`whitespace`](Self::whitespace).
    #[must_use]
    pub fn with_whitespace(self, whitespace: bool) -> Self {
        Self { whitespace, ..self }
    }

    /// The same options with this [`lenient`](Self::lenient).
    #[must_use]
    pub fn with_lenient(self, lenient: bool) -> Self {
        Self { lenient, ..self }
    }

    /// The same options with this [`closed`](Self::closed).
    #[must_use]
    pub fn with_closed(self, closed: bool) -> Self {
        Self { closed, ..self }
    }

    /// A schema that carries these options.
    #[doc(hidden)]
    #[must_use]
    pub fn put_into(self, schema: Value) -> Value {
        let schema = if schema == Value::Bool(true) { json!({}) } else { schema };
        let mut own = Map::new();
        own.extend(self.whitespace.then(|| ("whitespace_pattern".to_owned(), BLANKS.into())));
        own.extend(self.lenient.then(|| ("lenient".to_owned(), true.into())));
        own.extend(self.closed.then(|| (CLOSED.to_owned(), true.into())));
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
    /// JSON that is valid against a schema, without whitespace between its parts: see [`Constraint::json_schema_with`]
    /// for options. Properties come in the order of the schema. References must point into the schema itself: by JSON
    /// pointers, by anchors, or by the `$id` of a schema in it. llguidance's options can be given as `x-guidance`.
    ///
    /// The schema is enforced exactly, or refused: the guide, `docs/embedding.md`, lists all keywords. An unknown
    /// `format` is an annotation.
    ///
    /// Numbers are limited to those that other programs can read. An integer without bounds gets those of its `format`,
    /// `int32`, `uint32`, `int64` or `uint64`, and otherwise lies within ±(2^53 - 1), which every program reads
    /// exactly. All other numbers have at most 20 digits, or 20 more than the longest number in the schema if that has
    /// more than 20, and an exponent of at most two digits. A `Value` stores integers of more than 64 bits as doubles:
    /// pass a schema with longer numbers as text ([`Constraint::json_schema_text`]).
    ///
    /// # Errors
    /// [`Error::Constraint`], with the path of the part of the schema that has no valid value, is not supported, or is
    /// too deep, too large or too complex.
    pub fn json_schema(schema: Value) -> Result<Self> {
        Self::json_schema_with(schema, SchemaOptions::default())
    }

    /// The same, with options.
    ///
    /// # Errors
    /// See [`Constraint::json_schema`].
    pub fn json_schema_with(schema: Value, options: SchemaOptions) -> Result<Self> {
        ConstraintText::JsonSchema(options.put_into(schema)).try_into()
    }

    /// The same for a schema as text, whose numbers keep all of their digits.
    ///
    /// # Errors
    /// The errors of [`Constraint::json_schema`], and one for a text that is not JSON.
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

    /// A JSON body in which the numbers below these keys keep all of their digits, for a schema within it; `None` if
    /// that makes no difference.
    #[doc(hidden)]
    pub fn keep_digits(text: &str, below: &[&str]) -> Option<String> {
        exact::marked(text, below)
    }

    /// The original form of a part of such a body, with long numbers as doubles, for answers that repeat it.
    #[doc(hidden)]
    pub fn repeated(part: &Value) -> Value {
        exact::unmarked(part)
    }

    /// The same for a schema that another process has checked: the command's server does that in a process that it can
    /// kill.
    #[doc(hidden)]
    pub fn of_checked_schema(schema: Value) -> Self {
        Self(ConstraintText::JsonSchema(schema))
    }

    /// Whether a text is a complete answer, even if it could continue; for a reply that was cut off.
    ///
    /// # Errors
    /// [`Error::Constraint`] if it is too complex.
    #[doc(hidden)]
    pub fn accepts(&self, text: &str) -> Result<bool> {
        check::accepts(self, text)
    }

    /// The same with whitespace between the parts of JSON; `None` if it is not JSON, or has its own options for
    /// whitespace.
    pub(crate) fn with_blanks(&self) -> Option<Self> {
        let ConstraintText::JsonSchema(schema) = &self.0 else { return None };
        let says = |own: &Value| own.get("whitespace_pattern").is_some() || own.get("whitespace_flexible").is_some();
        if schema.get("x-guidance").is_some_and(says) {
            return None;
        }
        let options = SchemaOptions::default().with_whitespace(true);
        Some(Self(ConstraintText::JsonSchema(options.put_into(schema.clone()))))
    }

    /// Any JSON object, with numbers limited as by [`Constraint::json_schema`].
    pub fn json_object() -> Self {
        Self(ConstraintText::JsonSchema(json!({"type": "object"})))
    }

    /// Text that a regular expression matches from its beginning to its end, in the syntax of Rust's crate `regex`
    /// without look-around and word boundaries. `\d` and `\w` stand for the digits and letters of all scripts.
    ///
    /// # Errors
    /// [`Error::Constraint`] for an expression that is malformed, too long, or matches nothing.
    pub fn regex(expression: &str) -> Result<Self> {
        ConstraintText::Regex(expression.to_owned()).try_into()
    }

    /// Text by a grammar in llguidance's variant of Lark's syntax, which begins with the rule `start`.
    ///
    /// # Errors
    /// [`Error::Constraint`] for a grammar that is malformed, with the line, or too deep, too large or too complex.
    pub fn lark(grammar: &str) -> Result<Self> {
        ConstraintText::Lark(grammar.to_owned()).try_into()
    }

    /// The name of the kind in messages.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.0 {
            ConstraintText::JsonSchema(_) => check::SCHEMA,
            ConstraintText::Regex(_) => check::REGEX,
            ConstraintText::Lark(_) => check::LARK,
        }
    }

    /// The numbers in its answers, if these are JSON.
    pub(super) fn numbers(&self) -> Option<Numbers> {
        matches!(self.0, ConstraintText::JsonSchema(_)).then(|| Numbers::of_json(self.longest_number()))
    }

    /// The maximum number of digits that a number in its answers may need.
    pub(super) fn longest_number(&self) -> usize {
        if let ConstraintText::JsonSchema(schema) = &self.0 { exact::longest(schema) } else { 0 }
    }

    /// The grammar, under a name.
    pub(super) fn named(&self, name: &str) -> Result<GrammarWithLexer> {
        let grammar = match &self.0 {
            ConstraintText::JsonSchema(schema) => json_grammar(schema.clone(), How::CHECKED)?,
            ConstraintText::Regex(expression) => GrammarWithLexer::from_regex(expression),
            ConstraintText::Lark(grammar) => GrammarWithLexer::from_lark(grammar.clone()),
        };
        Ok(GrammarWithLexer { name: Some(name.to_owned()), ..grammar })
    }
}

/// The purpose for which a schema is prepared.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    /// Whether its limits are checked.
    checks: bool,
    /// Whether it is a function's schema, which need not be fully supported, and whose JSON is written as the model
    /// writes calls.
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

/// A schema in the form that llguidance compiles: with its options, and expressed in keywords that it enforces exactly.
///
/// # Errors
/// For a schema that cannot be enforced, has no value, or is too large, too deep or too complex.
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
    let Value::Object(mut given) = given else { return Err(whole("`x-guidance` is not an object".to_owned())) };
    let lenient = how.of_function || given.get("lenient") == Some(&Value::Bool(true));
    keywords::tidy(&mut schema, lenient)?;
    if reference::simplify(&mut schema, lenient)? {
        keywords::tidy(&mut schema, lenient)?; // a definition may be a copy of what was under an unknown keyword
    }
    match given.shift_remove(CLOSED) {
        None | Some(Value::Bool(false)) => {}
        Some(Value::Bool(true)) => schema = closed::closed(&schema)?,
        Some(other) => return Err(whole(format!("`x-guidance`: `{CLOSED}` is {other}, expected true or false"))),
    }
    if let Some(fault) = how.checks.then(|| depth::of_schema(&schema)).flatten() {
        return Err(fault);
    }
    finite::prune(&mut schema)?;
    open_unions(&mut schema);
    keywords::remove_annotations(&mut schema);
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

/// A standalone grammar.
pub(super) fn alone(grammar: GrammarWithLexer) -> TopLevelGrammar {
    TopLevelGrammar { grammars: vec![grammar], max_tokens: None }
}
