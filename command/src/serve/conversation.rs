//! What the interfaces for conversations have in common: their bodies become a [`Conversation`], which becomes the
//! state of a chat, within limits.

use super::compiling::Demand;
use super::constraints::{Format, close};
use super::failure::{Failure, shown};
use super::fields::{Fields, at_most, switch};
use super::memory::{Size, VALUE};
use super::server::{LoadedModel, Server};
use serde_json::{Map, Value};
use wglm_engine::text::ChatInput;
use wglm_engine::{Calls, ChatState, Message, Overflow};

/// The maximum size of the template's variables. Templates use strings, numbers and flags as variables.
const VARIABLES: Size = Size { values: 4096, text: 64 << 10 };

/// The maximum number of tools, and the maximum size of all of them together.
pub const TOOLS: usize = 1024;
const TOOL_SIZE: Size = Size { values: 1 << 16, text: 2 << 20 };

/// The number of copies of tools and schemas while replies are generated: the parser's, those of grammars, and those
/// that an answer repeats.
const COPIES: usize = 4;

/// Which parts of a request the messages of its conversation come from, for errors about a message.
#[derive(Debug, Default)]
pub struct Origins {
    /// The list of messages or items in the request.
    list: &'static str,
    of: Vec<Origin>,
}

#[derive(Debug, Clone, Copy)]
pub enum Origin {
    Field(&'static str),
    /// An item of the list.
    Item(usize),
    /// A block of the content of an item.
    Block(usize, usize),
}

impl Origins {
    /// The messages of this list, none of which is known yet.
    pub fn new(list: &'static str) -> Self {
        Self { list, of: Vec::new() }
    }

    /// The messages that are not known yet, of `count` altogether, come from this part.
    pub fn add(&mut self, count: usize, origin: Origin) {
        self.of.resize(count, origin);
    }

    /// Another message precedes all others.
    pub fn add_first(&mut self, origin: Origin) {
        self.of.insert(0, origin);
    }

    /// Where a message comes from.
    pub fn place(&self, message: usize) -> String {
        match self.of.get(message) {
            Some(Origin::Field(field)) => (*field).to_owned(),
            Some(Origin::Item(index)) => format!("{}[{index}]", self.list),
            Some(Origin::Block(index, at)) => format!("{}[{index}].content[{at}]", self.list),
            None => self.list.to_owned(),
        }
    }
}

pub struct Conversation {
    pub messages: Vec<Message>,
    /// The functions, in the form of chat completions.
    pub tools: Vec<Value>,
    pub calls: Calls,
    pub format: Format,
    /// The field of the request that has the format.
    pub format_in: &'static str,
    pub max_tokens: Option<usize>,
    /// Whether the model thinks, if neither the variables of the template nor the fields say so.
    pub thinking: bool,
    /// What happens to a conversation that is too long, if the field `overflow` does not say so.
    pub overflow: Overflow,
    pub fields: Fields,
    /// The field of the request that has these fields, empty if they are in the body itself.
    pub fields_in: &'static str,
}

impl Conversation {
    /// The state of the chat. If the request does not limit the number of tokens, the limit in the server's options
    /// applies.
    pub fn state(&mut self, server: &Server, loaded: &LoadedModel) -> Result<ChatState, Failure> {
        if server.json_closed {
            close(&mut self.tools);
        }
        let mut fields = std::mem::take(&mut self.fields);
        let overflow = fields.overflow.map_or(self.overflow, Overflow::from);
        let within = |failure: Failure| failure.of_fields_in(self.fields_in);
        let (thinks, template_kwargs) = variables(&mut fields, self.thinking).map_err(within)?;
        let mut options = fields.options(loaded).map_err(within)?;
        options.max_tokens = self.max_tokens.or(options.max_tokens);
        Ok(ChatState {
            messages: std::mem::take(&mut self.messages),
            reasoning: Some(thinks),
            tools: std::mem::take(&mut self.tools),
            template_kwargs,
            options,
            overflow,
            ..ChatState::default()
        })
    }

    /// The chat with those of its constraints that are compiled, what is still to be compiled, and the bytes of memory
    /// that its tools and schemas take while replies are generated.
    pub fn chat(mut self, server: &Server, loaded: &LoadedModel) -> Result<(ChatState, Demand, usize), Failure> {
        let mut chat = self.state(server, loaded)?;
        let schema = if let Format::Schema(schema) = &self.format { Size::of(schema).bytes() } else { 0 };
        let held = COPIES * (schema + chat.tools.iter().map(|tool| Size::of(tool).bytes()).sum::<usize>());
        let demand = server.compiling.demand(&mut chat, (self.format, self.format_in), self.calls)?;
        Ok((chat, demand, held))
    }
}

/// Whether the model thinks (`usual` if no field says), and the other variables of the template. More variables than
/// any template needs are refused, because each is copied several times while a prompt is made.
pub fn variables(fields: &mut Fields, usual: bool) -> Result<(bool, Map<String, Value>), Failure> {
    let mut variables = match fields.chat_template_kwargs.take() {
        None => Map::new(),
        Some(Value::Object(variables)) => variables,
        Some(other) => {
            let wrong = format!("{}: expected an object", shown(&other.to_string()));
            return Err(Failure::of_field("chat_template_kwargs", wrong));
        }
    };
    within("chat_template_kwargs", Size::of_map(&variables), VARIABLES)?;
    let thinks = variables.shift_remove("enable_thinking");
    let thinks = switch("chat_template_kwargs.enable_thinking", thinks.as_ref())?;
    Ok((thinks.or(fields.thinking()?).unwrap_or(usual), variables))
}

/// The part of a chat that the template gets.
pub fn template_input(chat: &ChatState) -> ChatInput<'_> {
    let mut input = ChatInput::new(&chat.messages);
    input.tools = Some(chat.tools.as_slice()).filter(|tools| !tools.is_empty());
    input.enable_thinking = chat.reasoning;
    input.extra = chat.template_kwargs.clone();
    input
}

/// Refuses a conversation if this field has no messages or too many.
pub fn check_messages(field: &str, count: usize, server: &Server) -> Result<(), Failure> {
    if count == 0 {
        return Err(Failure::invalid("there are no messages").with_param(field));
    }
    at_most(field, count, server.limits.messages, "messages")
}

/// Refuses more tools than a prompt can have.
pub fn check_tools(tools: &[Value]) -> Result<(), Failure> {
    at_most("tools", tools.len(), TOOLS, "tools")?;
    within("tools", tools.iter().map(Size::of).fold(Size::default(), |all, tool| all + tool), TOOL_SIZE)
}

fn within(field: &str, found: Size, most: Size) -> Result<(), Failure> {
    at_most(field, found.values, most.values, "values and keys")?;
    at_most(field, found.text, most.text, "bytes of text")
}

/// About how many bytes of memory a message takes.
pub fn message_size(message: &Message) -> usize {
    let calls = message.tool_calls.iter().map(|call| Size::of(&call.function.arguments).bytes() + VALUE);
    let texts = message.text().len() + message.reasoning_content.as_ref().map_or(0, String::len);
    texts + calls.sum::<usize>() + VALUE
}
