//! Messages, calls and the functions that can be called.

use crate::error::WglmError;
use wglm::FunctionCall;
use wglm::serde_json::{Map, Value, json};

/// A call of a function by the model.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Record)]
pub struct ToolCall {
    /// The id that the result of the call refers to.
    pub id: String,
    /// The function's name.
    pub name: String,
    /// The arguments: a JSON object.
    pub arguments: String,
}

impl From<&wglm::ToolCall> for ToolCall {
    fn from(call: &wglm::ToolCall) -> Self {
        let FunctionCall { name, arguments } = &call.function;
        Self { id: call.id.clone().unwrap_or_default(), name: name.clone(), arguments: arguments.to_string() }
    }
}

impl From<ToolCall> for wglm::ToolCall {
    fn from(call: ToolCall) -> Self {
        let function = FunctionCall::from_json(call.name, &call.arguments);
        let id = (!call.id.is_empty()).then_some(call.id);
        Self { id, function, ..Self::new("", Map::new()) }
    }
}

/// A message of a conversation. `Chat.save` and `Chat.restore` keep more of it: content in parts and further fields.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Record)]
pub struct Message {
    /// The role of the speaker: `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The text.
    pub content: String,
    /// The thinking that came before the assistant's answer.
    #[uniffi(default)]
    pub reasoning: Option<String>,
    /// The functions that the assistant calls.
    #[uniffi(default)]
    pub tool_calls: Vec<ToolCall>,
    /// The id of the call that a `tool` message answers.
    #[uniffi(default)]
    pub tool_call_id: Option<String>,
    /// The name of the speaker or of the function.
    #[uniffi(default)]
    pub name: Option<String>,
}

impl From<&wglm::Message> for Message {
    fn from(message: &wglm::Message) -> Self {
        Self {
            role: message.role.clone(),
            content: message.text().into_owned(),
            reasoning: message.reasoning_content.clone(),
            tool_calls: message.tool_calls.iter().map(ToolCall::from).collect(),
            tool_call_id: message.tool_call_id.clone(),
            name: message.name.clone(),
        }
    }
}

impl From<Message> for wglm::Message {
    fn from(message: Message) -> Self {
        Self {
            reasoning_content: message.reasoning,
            tool_calls: message.tool_calls.into_iter().map(wglm::ToolCall::from).collect(),
            tool_call_id: message.tool_call_id,
            name: message.name,
            ..Self::new(message.role, message.content)
        }
    }
}

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Record)]
pub struct Function {
    /// The name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON schema of its arguments, an object; none if it takes none.
    #[uniffi(default)]
    pub parameters: Option<String>,
    /// Whether calls have only the arguments that the schema names.
    #[uniffi(default)]
    pub strict: bool,
}

impl Function {
    /// The description in OpenAI's JSON.
    pub(crate) fn describe(&self) -> Result<Value, WglmError> {
        let mut function = json!({"name": self.name, "description": self.description});
        if let Some(parameters) = &self.parameters {
            let name = format!("the schema of the arguments of `{}`", self.name);
            let schema = serde_json::from_str(parameters).map_err(|error| WglmError::not_json(&name, &error))?;
            function["parameters"] = schema;
        }
        if self.strict {
            function["strict"] = true.into();
        }
        Ok(json!({"type": "function", "function": function}))
    }
}
