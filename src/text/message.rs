//! A conversation's messages, as chat templates and OpenAI-style JSON spell them.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// One message of a conversation.
///
/// Absent fields are left out when it is serialised, so that a template sees them as undefined. Reads
/// OpenAI-style JSON: `null` fields count as absent, and fields it does not know are kept for the
/// template.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`.
    pub role: String,
    /// What is said. Tags in it are text: thinking belongs into `reasoning_content`, calls into `tool_calls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// What the assistant thought before it answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// The functions that the assistant calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The call that a `tool` message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The speaker's or the function's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Any further fields that a template may know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Message {
    /// A message of any role.
    pub fn new(role: impl Into<String>, content: impl Into<Content>) -> Self {
        Self { role: role.into(), content: Some(content.into()), ..Self::default() }
    }

    /// Instructions that the user does not see.
    pub fn system(content: impl Into<Content>) -> Self {
        Self::new("system", content)
    }

    /// What the user says.
    pub fn user(content: impl Into<Content>) -> Self {
        Self::new("user", content)
    }

    /// What the model answered.
    pub fn assistant(content: impl Into<Content>) -> Self {
        Self::new("assistant", content)
    }

    /// What a function returned, in answer to the call `id`.
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

    /// What is said, as text: all of the parts that are text, one behind the other; empty if there is nothing.
    pub fn text(&self) -> Cow<'_, str> {
        self.content.as_ref().map_or(Cow::Borrowed(""), Content::text)
    }
}

/// What a message says: text, or a list of parts such as `{"type": "text", "text": ".."}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Parts that the template takes apart.
    Parts(Vec<Value>),
}

impl Content {
    /// As [`Message::text`].
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
    /// What the answer refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Always `function`.
    #[serde(rename = "type", default = "function")]
    pub kind: String,
    /// The call itself.
    pub function: FunctionCall,
}

impl ToolCall {
    /// A call of the function `name`.
    pub fn new(name: impl Into<String>, arguments: Map<String, Value>) -> Self {
        let function = FunctionCall { name: name.into(), arguments: Value::Object(arguments) };
        Self { id: None, kind: self::function(), function }
    }
}

/// A function and what it is called with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The function's name.
    pub name: String,
    /// An object of arguments. OpenAI's JSON carries it as a string of JSON, which is read into the object
    /// that templates expect; an empty string is an empty object.
    #[serde(default = "no_arguments", deserialize_with = "read_arguments")]
    pub arguments: Value,
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
        Value::String(text) if text.trim().is_empty() => Ok(no_arguments()),
        Value::String(text) => serde_json::from_str(&text)
            .map_err(|error| serde::de::Error::custom(format!("the arguments of a tool call are not JSON: {error}"))),
        arguments => Ok(arguments),
    }
}
