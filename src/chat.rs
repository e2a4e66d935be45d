//! A conversation: messages in, events out, through the file's own template.

mod check;
mod draft;
mod fit;
mod reply;
mod resume;
mod saved;

pub use reply::Reply;
pub use saved::SavedChat;

use crate::error::Result;
use crate::generate::{GenerateOptions, Generation};
use crate::model::Model;
use crate::session::Session;
use crate::text::{ChatInput, Message, ReplyParser};
use serde_json::{Map, Value};
use std::ops::Range;

/// A conversation with a model. The cache of earlier turns is kept: a turn computes only what is new in its prompt. That
/// is the user's message, unless the template leaves old thinking out, as GLM's do: then also the answer before it, as it
/// reads without its thinking. (`clear_thinking` false in [`template_kwargs`](Chat::template_kwargs) keeps it in.)
///
/// Only the template makes control tokens and tags. Their names in messages, `<|user|>` or `</think>` say, are text like
/// any other, whoever says them, and so they are in the descriptions of functions: nobody can speak in another's name.
/// What the model thought is a message's [`reasoning_content`](Message::reasoning_content), for in its content the
/// template finds no tags.
///
/// With [`tools`](Chat::tools) the model may call functions instead of answering, or after a part of an answer. Each
/// call is an [`Event::ToolCall`](crate::Event::ToolCall), complete, with an id of its own, after it was told piece by
/// piece; one that was cut or has not the form of a call is an [`Event::ToolCallFailed`](crate::Event::ToolCallFailed)
/// instead, and joins no message. Once the reply has ended, push what the functions returned and let the model go on:
///
/// ```
/// use wglm::{Chat, Event, Message};
///
/// # fn look_up(arguments: &wglm::serde_json::Value) -> String { arguments.to_string() }
/// # fn main() -> wglm::Result<()> {
/// # #[cfg(feature = "demo-model")] {
/// # use wglm::{Gguf, Gpu, GpuOptions, LoadOptions, Model};
/// # let gpu = Gpu::open(&GpuOptions::default())?;
/// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
/// let mut chat = Chat::new(&model)?;
/// # chat.options.max_tokens = Some(8);
/// chat.tools = vec![wglm::serde_json::json!({"type": "function", "function": {
///     "name": "weather",
///     "description": "The weather in a city",
///     "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
/// }})];
/// let mut events = chat.send("Do I need an umbrella in Hamburg?")?.collect::<Result<Vec<_>, _>>()?;
/// loop {
///     let before = chat.messages().len();
///     for event in events {
///         let Event::ToolCall(call) = event else { continue };
///         chat.push(Message::tool(call.id.unwrap_or_default(), look_up(&call.function.arguments)));
///     }
///     if chat.messages().len() == before {
///         break; // nothing was called
///     }
///     events = chat.reply()?.collect::<Result<Vec<_>, _>>()?;
/// }
/// # }
/// # Ok(())
/// # }
/// ```
pub struct Chat {
    session: Session,
    messages: Vec<Message>,
    /// Whether the model thinks before it answers; none leaves it to the template, which says yes.
    pub reasoning: Option<bool>,
    /// How replies are generated.
    pub options: GenerateOptions,
    /// The functions that the model may call, described in OpenAI's JSON; with none it calls none. They are part of the
    /// prompt's beginning: another list costs reading the conversation anew.
    pub tools: Vec<Value>,
    /// Further variables of the chat template, by name: `clear_thinking`, say. In them too, names of control tokens are
    /// text.
    pub template_kwargs: Map<String, Value>,
}

/// A prompt's tokens, and what reads the reply to it.
type Prepared = (Vec<u32>, ReplyParser);

impl Chat {
    /// An empty conversation.
    ///
    /// # Errors
    /// [`Error::Metadata`](crate::Error::Metadata) if the model has no tokenizer or no chat template, as an
    /// [`Error::File`](crate::Error::File) if its file has a path; otherwise as [`Session::new`].
    pub fn new(model: &Model) -> Result<Self> {
        Self::with_session(Session::new(model)?)
    }

    /// An empty conversation in a session.
    ///
    /// # Errors
    /// As [`Chat::new`].
    pub fn with_session(session: Session) -> Result<Self> {
        let model = session.model();
        model.tokenizer()?;
        model.template()?;
        let options = GenerateOptions { sampling: model.sampling()?, ..GenerateOptions::default() };
        let (messages, tools, template_kwargs) = (Vec::new(), Vec::new(), Map::new());
        Ok(Self { session, messages, reasoning: None, options, tools, template_kwargs })
    }

    /// The messages so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Appends a message, such as the system's, without a reply.
    pub fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// Forgets all messages but the first `length`: to ask anew, or to have another reply.
    pub fn truncate(&mut self, length: usize) {
        self.messages.truncate(length);
    }

    /// Forgets all messages. The cache stays for whatever the next conversation shares with this one.
    pub fn clear(&mut self) {
        self.messages.clear();
    }

    /// Takes messages out, such as those of a turn, and returns them. What of the range is beyond the last one is
    /// nothing. See [`Chat::fit`] for a conversation that is too long.
    pub fn remove(&mut self, range: Range<usize>) -> Vec<Message> {
        let end = range.end.min(self.messages.len());
        self.messages.drain(range.start.min(end)..end).collect()
    }

    /// Takes all messages out and returns them. The cache stays as after [`Chat::clear`].
    pub fn take_messages(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.messages)
    }

    /// Puts other messages in place of those that there are, to go on with another conversation or an edited one. The
    /// cache stays for what both have in common.
    pub fn set_messages(&mut self, messages: Vec<Message>) {
        self.messages = messages;
    }

    /// The tokens of the prompt that [`Chat::reply`] would reply to: how many they are tells how much of the context the
    /// conversation takes, and [`Session::reusable`] how many of them need not be computed.
    ///
    /// # Errors
    /// [`Error::Message`](crate::Error::Message) for a message that no prompt can be made of,
    /// [`Error::Argument`](crate::Error::Argument) for [`tools`](Chat::tools) that describe no function,
    /// [`Error::Refused`](crate::Error::Refused) if the chat template refuses the conversation;
    /// [`Error::Template`](crate::Error::Template) and [`Error::Tokenizer`](crate::Error::Tokenizer) for what is wrong
    /// with the file.
    pub fn prompt(&self) -> Result<Vec<u32>> {
        self.render(&self.messages).map(|(prompt, _)| prompt)
    }

    /// The session behind the conversation.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The session behind the conversation, to save or to restore. Whatever it holds, a reply is to the messages.
    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// The session alone.
    pub fn into_session(self) -> Session {
        self.session
    }

    /// Sends what the user says and returns the reply as it is generated. The reply joins the messages when it is
    /// dropped, as far as it came. The user's message is among them in any case: if nothing came, it is
    /// [unanswered](Chat::unanswered).
    ///
    /// Nothing is computed before the first event is asked for, so [`Reply::with_cancel`] is in time.
    ///
    /// # Errors
    /// As [`Chat::prompt`]; [`Error::ContextFull`](crate::Error::ContextFull) if the conversation is longer than the
    /// context; [`Error::Argument`](crate::Error::Argument) for options out of range. The messages are then as they were.
    /// Failures of the computation arrive as events.
    pub fn send(&mut self, text: &str) -> Result<Reply<'_>> {
        self.messages.push(Message::user(text));
        match self.prepare() {
            Ok(prepared) => self.begin(prepared),
            Err(error) => {
                self.messages.pop();
                Err(error)
            }
        }
    }

    /// The reply to the messages as they are, such as after what functions returned was [pushed](Chat::push). It joins
    /// the messages when it is dropped, as far as it came.
    ///
    /// # Errors
    /// As [`Chat::send`].
    pub fn reply(&mut self) -> Result<Reply<'_>> {
        let prepared = self.prepare()?;
        self.begin(prepared)
    }

    /// The messages at the end that nobody has answered: what the user or functions said and the model has said nothing
    /// to, because its reply was cancelled, ended or failed before the first token. [`Chat::reply`] asks for the answer
    /// again; [`Chat::send`] adds to them, and the model reads all of it; [`Chat::truncate`] takes them back.
    pub fn unanswered(&self) -> &[Message] {
        let asks = |message: &Message| ["user", "tool"].contains(&message.role.as_str());
        let before = self.messages.iter().rposition(|message| !asks(message)).map_or(0, |last| last + 1);
        &self.messages[before..]
    }

    /// The prompt and what reads the reply to it, if nothing that was asked for speaks against a reply.
    fn prepare(&self) -> Result<Prepared> {
        self.options.check()?;
        let prepared = self.render(&self.messages)?;
        self.session.check(0, &prepared.0)?;
        Ok(prepared)
    }

    fn begin(&mut self, (prompt, parser): Prepared) -> Result<Reply<'_>> {
        let generation = Generation::new(&mut self.session, prompt, Some(parser), self.options.clone())?;
        Ok(Reply::new(generation, &mut self.messages))
    }

    /// The prompt of some messages, and what reads the reply to it.
    fn render(&self, messages: &[Message]) -> Result<Prepared> {
        let model = self.session.model();
        let (tokenizer, template) = (model.tokenizer()?, model.template()?);
        check::messages(messages, template)?;
        check::tools(&self.tools)?;
        let mut input = ChatInput::new(messages);
        input.enable_thinking = self.reasoning;
        input.tools = Some(self.tools.as_slice()).filter(|tools| !tools.is_empty());
        input.extra = self.template_kwargs.clone();
        let prompt = template.prompt(&input, tokenizer)?;
        let parser = ReplyParser::new(prompt.opens_thinking).with_tools(&self.tools);
        Ok((prompt.tokens, parser))
    }
}

impl std::fmt::Debug for Chat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chat")
            .field("messages", &self.messages.len())
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}
