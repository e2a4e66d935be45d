//! Messages of a conversation, in the form that chat templates and OpenAI-style JSON use.

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// One message of a conversation.
///
/// Absent fields are omitted when a message is serialized, so that templates see them as undefined. OpenAI-style JSON
/// can be deserialized: fields that are `null` count as absent, and unknown fields are kept for the template.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The role of the speaker: `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The content. Tags in it are plain text: thinking belongs in `reasoning_content`, calls in `tool_calls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// The thinking that came before the assistant's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// The functions that the assistant calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The id of the call that a `tool` message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The name of the speaker or of the function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// All further fields, which a template may use.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Message {
    /// The same message with null for a content that is absent beside calls, as OpenAI's JSON has it.
    pub(super) fn with_null_beside_calls(&self) -> Self {
        let mut message = self.clone();
        if message.content.is_none() && !message.tool_calls.is_empty() {
            message.extra.insert("content".to_owned(), Value::Null);
        }
        message
    }

    /// The same message with its calls as OpenAI's JSON has them: the arguments too are a string of JSON.
    pub(super) fn with_calls_as_text(&self) -> Self {
        let mut message = self.with_null_beside_calls();
        for call in &mut message.tool_calls {
            call.function.arguments = call.function.arguments.to_string().into();
        }
        message
    }

    /// A message of any role.
    pub fn new(role: impl Into<String>, content: impl Into<Content>) -> Self {
        Self { role: role.into(), content: Some(content.into()), ..Self::default() }
    }

    /// Instructions that the user does not see.
    pub fn system(content: impl Into<Content>) -> Self {
        Self::new("system", content)
    }

    /// A user message.
    pub fn user(content: impl Into<Content>) -> Self {
        Self::new("user", content)
    }

    /// An answer of the model.
    pub fn assistant(content: impl Into<Content>) -> Self {
        Self::new("assistant", content)
    }

    /// The result of a function, in answer to the call `id`.
    pub fn tool(id: impl Into<String>, content: impl Into<Content>) -> Self {
        Self { tool_call_id: Some(id.into()), ..Self::new("tool", content) }
    }

    /// The same message with the thinking that came before it.
    pub fn with_reasoning(self, reasoning: impl Into<String>) -> Self {
        Self { reasoning_content: Some(reasoning.into()), ..self }
    }

    /// The same message with function calls.
    pub fn with_tool_calls(self, tool_calls: Vec<ToolCall>) -> Self {
        Self { tool_calls, ..self }
    }

    /// The content as text: all of its text parts joined, or nothing if there is no content.
    pub fn text(&self) -> Cow<'_, str> {
        self.content.as_ref().map_or(Cow::Borrowed(""), Content::text)
    }
}

/// The content of a message: text, or a list of parts such as `{"type": "text", "text": ".."}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of parts")]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Parts that the template interprets.
    Parts(Vec<Value>),
}

impl Content {
    /// The content as text; see [`Message::text`].
    pub fn text(&self) -> Cow<'_, str> {
        let part = |part: &'_ Value| part.as_str().or_else(|| part["text"].as_str()).unwrap_or_default().to_owned();
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Parts(parts) => Cow::Owned(parts.iter().map(part).collect()),
        }
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// A function call by the assistant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The id that the answer to the call refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The type of the call, which is always `function`.
    #[serde(rename = "type", default = "function")]
    pub kind: String,
    /// The called function and its arguments.
    pub function: FunctionCall,
}

impl ToolCall {
    /// A call of the function `name`.
    pub fn new(name: impl Into<String>, arguments: Map<String, Value>) -> Self {
        let function = FunctionCall { name: name.into(), arguments: Value::Object(arguments) };
        Self { id: None, kind: self::function(), function }
    }
}

/// The name of a function and the arguments of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The function's name.
    pub name: String,
    /// An object of arguments. OpenAI's JSON carries it as a string of JSON, which is converted to the object that
    /// templates expect, as [`FunctionCall::from_json`] does.
    #[serde(default = "no_arguments", deserialize_with = "read_arguments")]
    pub arguments: Value,
}

impl FunctionCall {
    /// A call with arguments in the form of OpenAI's JSON: a string with an object. If the object was cut off or is
    /// malformed, the arguments are those that are complete before the first error; anything else, such as an empty
    /// string or a list, stands for no arguments.
    pub fn from_json(name: impl Into<String>, arguments: &str) -> Self {
        Self { name: name.into(), arguments: Value::Object(complete_members(arguments)) }
    }
}

/// The members of an object before an error in its JSON.
fn complete_members(json: &str) -> Map<String, Value> {
    let mut members = Members::default();
    let _first_error = Deserializer::deserialize_map(&mut serde_json::Deserializer::from_str(json), &mut members);
    // A number at the end may have had more digits.
    let may_go_on = || json.ends_with(|last: char| last.is_ascii_digit());
    if may_go_on() && serde_json::from_str::<IgnoredAny>(&format!("{json}}}")).is_ok() {
        members.last = None;
    }
    members.before.extend(members.last);
    members.before
}

/// The members of an object that were read.
#[derive(Default)]
struct Members {
    before: Map<String, Value>,
    last: Option<(String, Value)>,
}

impl<'de> Visitor<'de> for &mut Members {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(member) = map.next_entry()? {
            self.before.extend(self.last.replace(member));
        }
        Ok(())
    }
}

fn function() -> String {
    "function".into()
}

fn no_arguments() -> Value {
    Value::Object(Map::new())
}

fn null_is_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ToolCall>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn read_arguments<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(no_arguments()),
        Value::String(text) => Ok(FunctionCall::from_json("", &text).arguments),
        arguments => Ok(arguments),
    }
}
