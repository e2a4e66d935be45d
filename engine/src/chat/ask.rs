//! Replies that are values of a type.

use super::{Chat, Reply};
use crate::cancel::Cancel;
use crate::constrain::{self, Calls, Constraint};
use crate::error::Error;
use crate::generate::{Event, GenerateOptions, Stats, Stop};
use crate::text::Message;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// What errors call a value of a schema, which has no type.
pub(crate) const VALUE: &str = "JSON value";

/// Why [`Chat::ask`] returned no value.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The reply failed or was refused.
    #[error(transparent)]
    Failed(#[from] Error),
    /// The reply ended before the value was complete. In a [`Chat`] it is part of the conversation, so after
    /// [`Stop::Length`] or a cancellation [`Chat::resume_ask`] or [`Chat::resume_ask_value`] continues it and returns
    /// the value; [`Chat::resume`] continues it with the same schema and returns its events. A
    /// [`Scheduler`](crate::Scheduler) stores no conversation: ask it again, with a larger
    /// [`max_tokens`](GenerateOptions::max_tokens).
    #[error("the reply ended before its value was complete ({}), after {} bytes; resume it if it belongs to a Chat, or ask again with a larger max_tokens", why(*stop), text.len())]
    Unfinished {
        /// The answer so far.
        text: String,
        /// Why it ended.
        stop: Stop,
    },
    /// The answer matches the schema of the type but is not a value of it, for example because the schema does not
    /// state a range that the type has.
    #[error("the answer is not a valid {name}: {reason}")]
    NoValue {
        /// The name of the type.
        name: String,
        /// What is wrong.
        reason: String,
        /// The answer.
        text: String,
    },
}

/// Why a reply ended before its value was complete, for people.
fn why(stop: Stop) -> &'static str {
    match stop {
        Stop::End => "the model ended it",
        Stop::Length => "max_tokens was reached",
        Stop::Context => "the context is full",
        Stop::Cancelled => "it was stopped",
        Stop::StopString => "a stop string came up",
        Stop::Loop => "it repeated itself",
    }
}

impl Chat {
    /// Appends a user message, and returns the reply as a value. The answer is JSON that matches the schema of the
    /// type: see [`Constraint::json_schema`]. Where the schema says that exactly one of several alternatives holds, the
    /// answer may match any of them. [`constraint`](crate::GenerateOptions::constraint) has no effect here, and no
    /// functions are called.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use wglm::{Chat, Gguf, Gpu, GpuOptions, LoadOptions, Model};
    /// # let gpu = Gpu::open(&GpuOptions::default())?;
    /// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Sum {
    ///     #[schemars(range(min = 0, max = 99))]
    ///     sum: u32,
    /// }
    ///
    /// let mut chat = Chat::new(&model)?;
    /// chat.reasoning = Some(false);
    /// let Sum { sum } = chat.ask("What is seven plus five?")?;
    /// assert!(sum <= 99);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AskError::Unfinished`] with the text so far if the context or
    /// [`max_tokens`](crate::GenerateOptions::max_tokens) was too small: [`Chat::resume_ask`] continues the reply.
    /// [`AskError::Failed`] with [`Error::Constraint`] for a type whose schema is not supported or has no value, before
    /// anything is generated, and otherwise with the errors of [`Chat::send`]; [`AskError::NoValue`].
    pub fn ask<T: DeserializeOwned + JsonSchema>(&mut self, text: &str) -> Result<T, AskError> {
        self.ask_with(text, &Cancel::default())
    }

    /// Like [`Chat::ask`]. `cancel` stops the reply.
    ///
    /// # Errors
    /// See [`Chat::ask`]. After a cancellation, the error is [`AskError::Unfinished`] with [`Stop::Cancelled`].
    pub fn ask_with<T: DeserializeOwned + JsonSchema>(&mut self, text: &str, cancel: &Cancel) -> Result<T, AskError> {
        self.answer(&T::schema_name(), text, constraint_of::<T>()?, cancel)
    }

    /// Like [`Chat::ask_with`], but takes the JSON schema as a value and returns the answer as one, for schemas that
    /// are known only when the app runs. The schema is used unchanged, as in [`Constraint::json_schema`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use wglm::{Chat, Gguf, Gpu, GpuOptions, LoadOptions, Model};
    /// # let gpu = Gpu::open(&GpuOptions::default())?;
    /// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
    /// use wglm::{Cancel, serde_json::json};
    ///
    /// let mut chat = Chat::new(&model)?;
    /// chat.reasoning = Some(false);
    /// let schema = json!({"type": "integer", "minimum": 0, "maximum": 99});
    /// let sum = chat.ask_value("What is seven plus five?", &schema, &Cancel::default())?;
    /// assert!(sum.as_u64().is_some_and(|sum| sum <= 99));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`Chat::ask_with`]. [`AskError::NoValue`] is the error for an answer that is nested more than 127
    /// levels deep, which [`serde_json`] does not read. A number with more digits than a [`Value`] holds is returned as
    /// the nearest double; its digits are in the text of the last message.
    pub fn ask_value(&mut self, text: &str, schema: &Value, cancel: &Cancel) -> Result<Value, AskError> {
        self.answer(VALUE, text, Constraint::json_schema(schema.clone())?, cancel)
    }

    /// The value that answers a message and matches a constraint. `name` is the name of the value in errors.
    fn answer<T: DeserializeOwned>(
        &mut self,
        name: &str,
        text: &str,
        constraint: Constraint,
        cancel: &Cancel,
    ) -> Result<T, AskError> {
        let answered = self.constrained(&constraint, |chat| answer_of(chat.send(text)?.with_cancel(cancel)));
        self.value(name, answered, constraint)
    }

    /// Answers a message with a text that matches a constraint. `take` receives all events and returns the statistics
    /// of the last one.
    pub(crate) fn ask_in_events(
        &mut self,
        text: &str,
        constraint: Constraint,
        take: impl FnOnce(Reply<'_>) -> Result<Option<Stats>, Error>,
    ) -> Result<Option<Stats>, Error> {
        let last = self.constrained(&constraint, |chat| take(chat.send(text)?))?;
        self.remember(last.as_ref().map_or(Stop::Cancelled, |stats| stats.stop), constraint);
        Ok(last)
    }

    /// Continues the reply that [`Chat::ask`] left unfinished, and returns the value once it is complete. Call it again
    /// after each [`AskError::Unfinished`]. The text in that error, and in [`AskError::NoValue`], is the whole answer
    /// so far.
    ///
    /// [`Chat::resume`] also continues the same reply with the same schema, and returns its events. Both work after
    /// [`Chat::restore`], too.
    ///
    /// # Errors
    /// The errors of [`Chat::ask`] and of [`Chat::resume`].
    pub fn resume_ask<T: DeserializeOwned + JsonSchema>(&mut self) -> Result<T, AskError> {
        self.resumed(&T::schema_name(), constraint_of::<T>()?, &Cancel::default())
    }

    /// Like [`Chat::resume_ask`], for an unfinished [`Chat::ask_value`]. `cancel` stops it.
    ///
    /// # Errors
    /// The errors of [`Chat::ask_value`] and of [`Chat::resume`].
    pub fn resume_ask_value(&mut self, schema: &Value, cancel: &Cancel) -> Result<Value, AskError> {
        self.resumed(VALUE, Constraint::json_schema(schema.clone())?, cancel)
    }

    fn resumed<T: DeserializeOwned>(
        &mut self,
        name: &str,
        constraint: Constraint,
        cancel: &Cancel,
    ) -> Result<T, AskError> {
        let before = self.answer_so_far();
        let answered = self.resume_by(&constraint, |reply| answer_of(reply.with_cancel(cancel)));
        let whole = answered.map(|(more, stop)| (whole_answer(&self.messages, before, &more), stop));
        self.value(name, whole, constraint)
    }

    /// Continues an unfinished answer with a text that matches a constraint. `take` receives all events and returns the
    /// statistics of the last one.
    pub(crate) fn resume_ask_in_events(
        &mut self,
        constraint: Constraint,
        take: impl FnOnce(Reply<'_>) -> Result<Option<Stats>, Error>,
    ) -> Result<Option<Stats>, Error> {
        let last = self.resume_by(&constraint, take)?;
        self.remember(last.as_ref().map_or(Stop::Cancelled, |stats| stats.stop), constraint);
        Ok(last)
    }

    /// Continues a reply with this constraint, whatever the unfinished answer had to match before.
    fn resume_by<R>(
        &mut self,
        constraint: &Constraint,
        take: impl FnOnce(Reply<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let asked = self.asked.take();
        let taken = self.constrained(constraint, |chat| take(chat.resume()?));
        taken.inspect_err(|_| self.asked = asked)
    }

    /// Runs something with a constraint set and without functions.
    fn constrained<R>(&mut self, constraint: &Constraint, run: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.options.constraint.replace(constraint.clone());
        let calls = std::mem::replace(&mut self.options.calls, Calls::None);
        let result = run(self);
        (self.options.constraint, self.options.calls) = (before, calls);
        result
    }

    /// The options to resume a reply with: an unfinished [`Chat::ask`] continues with the same schema.
    pub(super) fn resumed_options(&self) -> GenerateOptions {
        let mut options = self.options.clone();
        if let Some(constraint) = self.unfinished() {
            (options.constraint, options.calls) = (Some(constraint), Calls::None);
        }
        options
    }

    /// What the last message has to match, if it is an unfinished value of [`Chat::ask`].
    pub(super) fn unfinished(&self) -> Option<Constraint> {
        let asked = self.asked.as_ref().filter(|asked| self.answer_so_far().starts_with(&asked.answer));
        asked.map(|asked| asked.constraint.clone())
    }

    /// Marks the last message as such a value if there is a constraint.
    pub(super) fn set_unfinished(&mut self, constraint: Option<Constraint>) {
        self.asked = constraint.map(|constraint| Asked { answer: self.answer_so_far(), constraint });
    }

    fn answer_so_far(&self) -> String {
        last_answer(&self.messages)
    }

    /// The value of an answer. An unfinished answer is stored with its constraint, so that it can be resumed.
    fn value<T: DeserializeOwned>(
        &mut self,
        name: &str,
        answered: Result<(String, Stop), Error>,
        constraint: Constraint,
    ) -> Result<T, AskError> {
        let answer = answered?;
        self.remember(answer.1, constraint);
        read(name, answer)
    }

    fn remember(&mut self, stop: Stop, constraint: Constraint) {
        self.set_unfinished((stop != Stop::End).then_some(constraint));
    }
}

/// An unfinished value of [`Chat::ask`]. It is dropped with the next change of the messages.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// The answer so far.
    answer: String,
    /// What the answer has to match.
    constraint: Constraint,
}

/// The text of the last message, if it is the assistant's.
pub(crate) fn last_answer(messages: &[Message]) -> String {
    let last = messages.last().filter(|last| last.role == "assistant");
    last.map(|last| last.text().into_owned()).unwrap_or_default()
}

/// The whole text of an answer that was continued with `more`. The last of `messages` has it, unless none of it became
/// part of a message.
pub(crate) fn whole_answer(messages: &[Message], before: String, more: &str) -> String {
    let whole = last_answer(messages);
    if whole.is_empty() { before + more } else { whole }
}

/// The text of a reply, and why it ended.
pub(crate) fn answer_of(reply: impl Iterator<Item = Result<Event, Error>>) -> Result<(String, Stop), Error> {
    let (mut answer, mut stop) = (String::new(), Stop::Cancelled);
    for event in reply {
        match event? {
            Event::Text(piece) => answer.push_str(&piece),
            Event::Done(stats) => stop = stats.stop,
            _ => {}
        }
    }
    Ok((answer, stop))
}

/// What an answer has to match to be a value of a type: the type's schema, as serde reads it. Objects are closed, since
/// a type ignores other entries and a model could write them forever. Where exactly one of several alternatives should
/// hold, any of them may. A set may contain the same item twice.
pub(crate) fn constraint_of<T: JsonSchema>() -> Result<Constraint, Error> {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().to_value();
    constrain::for_each_schema(&mut schema, &mut |keywords| {
        close(keywords);
        keywords.shift_remove("uniqueItems");
    });
    if let Some(parts) = schema.as_object_mut() {
        parts.insert("x-guidance".to_owned(), json!({"coerce_one_of": true}));
    }
    Constraint::json_schema(schema)
}

/// Reads a value of a type with this name from an answer.
pub(crate) fn read<T: DeserializeOwned>(name: &str, (text, stop): (String, Stop)) -> Result<T, AskError> {
    if stop != Stop::End {
        return Err(AskError::Unfinished { text, stop }); // a value that is cut short may be another value: 12 of 1234
    }
    serde_json::from_str(&text).map_err(|reason| AskError::NoValue {
        name: name.to_owned(),
        reason: reason.to_string(),
        text,
    })
}

/// The keywords that say more about an object's entries than `properties` does.
const OPEN: [&str; 13] = [
    "$ref",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "dependentSchemas",
    "else",
    "enum",
    "if",
    "oneOf",
    "patternProperties",
    "then",
    "unevaluatedProperties",
];

/// The keywords that apply several schemas to the same value.
const TOGETHER: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Closes objects: they may have only the entries that their schemas name. A type ignores others, and a model could
/// write them forever. A schema that is flattened into an object describes the same entries, so neither of the two can
/// be closed.
fn close(schema: &mut Map<String, Value>) {
    // A type without fields is an object without `properties`.
    let has_entries = schema
        .get("properties")
        .map_or_else(|| schema.get("type").is_some_and(|kind| kind == "object"), Value::is_object);
    if has_entries && !OPEN.iter().any(|key| schema.contains_key(*key)) {
        schema.insert("additionalProperties".to_owned(), false.into());
    } else if has_entries {
        open_parts(schema);
    }
}

/// Leaves the entries of an object open in all parts of its schema.
fn open_parts(schema: &mut Map<String, Value>) {
    let parts = schema.iter_mut().filter(|(key, _)| TOGETHER.contains(&key.as_str()));
    for part in parts.filter_map(|(_, list)| list.as_array_mut()).flatten().filter_map(Value::as_object_mut) {
        let has_entries = part.contains_key("properties") || part.get("type").is_some_and(|kind| kind == "object");
        if has_entries && part.get("additionalProperties").is_none_or(|of| *of == false) {
            part.insert("additionalProperties".to_owned(), true.into());
        }
        open_parts(part);
    }
}
