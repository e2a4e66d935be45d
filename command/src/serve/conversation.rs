//! What the interfaces for conversations have in common: their bodies become a [`Conversation`], which becomes the
//! state of a chat, within limits.

use super::compiling::Demand;
use super::constraints::Format;
use super::failure::{Failure, shown};
use super::fields::{Fields, at_most, max_tokens};
use super::memory::{Size, VALUE};
use super::server::{LoadedModel, Server};
use serde_json::{Map, Value};
use wglm_engine::text::ChatInput;
use wglm_engine::{Calls, ChatState, Message, Overflow};

/// The most variables of a template. Those that templates have are words, numbers and flags.
const VARIABLES: Size = Size { values: 4096, text: 64 << 10 };

/// The most tools, and how large all of them together may be.
const TOOLS: usize = 1024;
const TOOL_SIZE: Size = Size { values: 1 << 16, text: 2 << 20 };

/// The most parts of a message, and the most calls.
const PARTS: usize = 1024;

/// The number of copies of tools and schemas while replies are generated: the parser's, those of grammars, and those
/// that an answer repeats.
const COPIES: usize = 4;

pub struct Conversation {
    pub messages: Vec<Message>,
    /// The functions, in the form of chat completions.
    pub tools: Vec<Value>,
    pub calls: Calls,
    pub format: Format,
    pub max_tokens: Option<i64>,
    /// Whether the model thinks, if the variables of the template do not say so.
    pub thinking: bool,
    /// What happens to a conversation that is too long, if the field `overflow` does not say so.
    pub overflow: Overflow,
    pub fields: Fields,
}

impl Conversation {
    /// The state of the chat. A number of tokens that the request does not limit has the limit of the server's options.
    pub fn state(&mut self, loaded: &LoadedModel) -> Result<ChatState, Failure> {
        let mut fields = std::mem::take(&mut self.fields);
        let overflow = fields.overflow.map_or(self.overflow, Overflow::from);
        let (thinking, template_kwargs) = variables(fields.chat_template_kwargs.take())?;
        let mut options = fields.options(loaded)?;
        options.max_tokens = max_tokens(self.max_tokens)?.or(options.max_tokens);
        Ok(ChatState {
            messages: std::mem::take(&mut self.messages),
            reasoning: Some(thinking.unwrap_or(self.thinking)),
            tools: std::mem::take(&mut self.tools),
            template_kwargs,
            options,
            overflow,
            ..ChatState::default()
        })
    }

    /// The chat with its constraints, as far as they are compiled, and the bytes of memory that its tools and schemas
    /// take while replies are generated.
    pub fn chat(mut self, server: &Server, loaded: &LoadedModel) -> Result<(ChatState, Demand, usize), Failure> {
        let mut chat = self.state(loaded)?;
        let schema = if let Format::Schema(schema) = &self.format { Size::of(schema).bytes() } else { 0 };
        let held = COPIES * (schema + chat.tools.iter().map(|tool| Size::of(tool).bytes()).sum::<usize>());
        let demand = server.compiling.demand(&mut chat, self.format, self.calls)?;
        Ok((chat, demand, held))
    }
}

/// The variables of the template, and whether they say that the model thinks. More of them than any template needs are
/// refused: each is copied several times while a prompt is made.
pub fn variables(given: Option<Value>) -> Result<(Option<bool>, Map<String, Value>), Failure> {
    let mut variables = match given {
        None => Map::new(),
        Some(Value::Object(variables)) => variables,
        Some(other) => {
            let message = format!("chat_template_kwargs: {}: expected an object", shown(&other.to_string()));
            return Err(Failure::invalid(message));
        }
    };
    within("chat_template_kwargs", Size::of_map(&variables), VARIABLES)?;
    match variables.shift_remove("enable_thinking") {
        None | Some(Value::Null) => Ok((None, variables)),
        Some(Value::Bool(thinking)) => Ok((Some(thinking), variables)),
        Some(other) => {
            let found = other.to_string();
            let message = format!("chat_template_kwargs.enable_thinking: {}: expected true or false", shown(&found));
            Err(Failure::invalid(message))
        }
    }
}

/// What the template gets of a chat.
pub fn template_input(chat: &ChatState) -> ChatInput<'_> {
    let mut input = ChatInput::new(&chat.messages);
    input.tools = Some(chat.tools.as_slice()).filter(|tools| !tools.is_empty());
    input.enable_thinking = chat.reasoning;
    input.extra = chat.template_kwargs.clone();
    input
}

/// Refuses a conversation without messages or with too many.
pub fn check_messages(count: usize, server: &Server) -> Result<(), Failure> {
    if count == 0 {
        return Err(Failure::invalid("there are no messages"));
    }
    at_most("messages", count, server.limits.messages, "messages")
}

/// Refuses more tools than a prompt can have.
pub fn check_tools(tools: &[Value]) -> Result<(), Failure> {
    at_most("tools", tools.len(), TOOLS, "tools")?;
    within("tools", tools.iter().map(Size::of).fold(Size::default(), |all, tool| all + tool), TOOL_SIZE)
}

/// Refuses a message of too many parts or calls.
pub fn check_parts(message: usize, what: &str, count: usize) -> Result<(), Failure> {
    at_most(&format!("message {message}"), count, PARTS, what)
}

fn within(field: &str, found: Size, most: Size) -> Result<(), Failure> {
    at_most(field, found.values, most.values, "values and keys")?;
    at_most(field, found.text, most.text, "bytes of text")
}

pub fn not_text(message: usize, kind: &str) -> Failure {
    Failure::unsupported(format!("message {message}: a part of type {}: this model reads text only", shown(kind)))
}

/// The text of a value that is text, a list of parts of text, or anything else as JSON.
pub fn joined_text(message: usize, content: Option<&Value>) -> Result<String, Failure> {
    let parts = match content {
        None | Some(Value::Null) => return Ok(String::new()),
        Some(Value::String(text)) => return Ok(text.clone()),
        Some(Value::Array(parts)) => parts,
        Some(other) => return Ok(other.to_string()),
    };
    check_parts(message, "parts", parts.len())?;
    let text = |part: &Value| {
        let field = |name: &str| part.get(name).and_then(Value::as_str);
        match (part.as_str().or_else(|| field("text")).or_else(|| field("refusal")), field("type")) {
            (Some(text), _) => Ok(text.to_owned()),
            // The name of a tool that a search found: the client sends its description as a function.
            (None, Some("tool_reference")) => Ok(part.to_string()),
            (None, kind) => Err(not_text(message, kind.unwrap_or("unknown"))),
        }
    };
    Ok(parts.iter().map(text).collect::<Result<Vec<_>, _>>()?.join("\n"))
}

/// About how many bytes of memory a message takes.
pub fn message_size(message: &Message) -> usize {
    let calls = message.tool_calls.iter().map(|call| Size::of(&call.function.arguments).bytes() + VALUE);
    let texts = message.text().len() + message.reasoning_content.as_ref().map_or(0, String::len);
    texts + calls.sum::<usize>() + VALUE
}
