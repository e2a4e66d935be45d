//! Conversations with a model. The chat template of the model's file turns messages into a prompt; a reply arrives as
//! events.

#[cfg(feature = "schema")]
mod ask;
mod beginning;
mod call_ids;
mod check;
mod draft;
mod fit;
mod overflow;
mod prompt;
mod reply;
mod resume;
mod state;

#[cfg(feature = "schema")]
pub use ask::AskError;
#[cfg(feature = "schema")]
pub(crate) use ask::{VALUE, answer_of, constraint_of, last_answer, read, whole_answer};
pub(crate) use beginning::take_beginning;
pub(crate) use call_ids::CallIds;
pub(crate) use fit::drop_before;
pub use overflow::Overflow;
pub(crate) use prompt::PromptMaker;
pub use reply::Reply;
pub use state::ChatState;

use crate::error::Result;
use crate::generate::{Event, GenerateOptions, Generation, GenerationTask};
use crate::model::Model;
use crate::session::Session;
use crate::text::Message;
use serde_json::{Map, Value};
use std::ops::Range;

/// A conversation with a model. It keeps the KV cache of earlier turns, so that a turn computes only the new part of
/// its prompt. That part is the user's message and, with templates that leave earlier thinking out of the prompt, as
/// GLM's do, also the answer before it, since that answer now follows other tokens. (With `clear_thinking` set to false
/// in [`template_kwargs`](Chat::template_kwargs), GLM's template keeps the thinking.)
///
/// Only the template makes control tokens and tags. If their names, such as `<|user|>` or `</think>`, occur in a
/// message or in the description of a function, they are plain text, so no message can imitate another role. For the
/// same reason the template finds no tags in a message's content: store what the model thought in
/// [`reasoning_content`](Message::reasoning_content).
///
/// With [`tools`](Chat::tools) the model can call functions instead of answering, or after a part of an answer. The
/// arguments of a call arrive as JSON in pieces, and the complete call as [`Event::ToolCall`](crate::Event::ToolCall),
/// with an id that no other call of the conversation has. A call that was cut off or is malformed arrives as
/// [`Event::ToolCallFailed`](crate::Event::ToolCallFailed) instead and does not become part of the message. Once the
/// reply has ended, push what the functions returned and let the model continue:
///
/// ```
/// use wglm::{Chat, Event, Message};
///
/// # fn look_up(arguments: &wglm::serde_json::Value) -> String { arguments.to_string() }
/// # fn main() -> wglm::Result<()> {
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
/// # Ok(())
/// # }
/// ```
pub struct Chat {
    session: Session,
    messages: Vec<Message>,
    /// Whether the model thinks before it answers. `None` leaves this to the template, which
    /// usually lets it think.
    pub reasoning: Option<bool>,
    /// The options of generation for every reply.
    pub options: GenerateOptions,
    /// The functions that the model may call, described in OpenAI's JSON; if empty, it calls none. The descriptions are
    /// at the beginning of the prompt, so after a change the whole conversation is computed again.
    pub tools: Vec<Value>,
    /// More variables for the chat template, by name, such as `clear_thinking`. Names of control tokens in them become
    /// plain text, too.
    pub template_kwargs: Map<String, Value>,
    /// What [`send`](Chat::send) and [`reply`](Chat::reply) do if the conversation outgrows the context: by default
    /// they refuse.
    pub overflow: Overflow,
    #[cfg(feature = "schema")]
    asked: Option<ask::Asked>,
}

impl Chat {
    /// Creates an empty conversation in a new session.
    ///
    /// # Errors
    /// The errors of [`Model::tokenizer`] and [`Model::template`] if the model has no tokenizer or no chat template, or
    /// one that cannot be used; otherwise the errors of [`Session::new`].
    pub fn new(model: &Model) -> Result<Self> {
        Self::with_session(Session::new(model)?)
    }

    /// Creates an empty conversation in an existing session.
    ///
    /// # Errors
    /// The errors of [`Chat::new`].
    pub fn with_session(session: Session) -> Result<Self> {
        let model = session.model();
        model.tokenizer()?;
        model.template()?;
        let options = GenerateOptions { sampling: model.sampling()?, ..GenerateOptions::default() };
        let (messages, tools, template_kwargs) = (Vec::new(), Vec::new(), Map::new());
        let (reasoning, overflow) = (None, Overflow::default());
        Ok(Self {
            session,
            messages,
            reasoning,
            options,
            tools,
            template_kwargs,
            overflow,
            #[cfg(feature = "schema")]
            asked: None,
        })
    }

    /// The messages so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Appends a message, for example the system prompt, without asking for a reply.
    pub fn push(&mut self, message: Message) {
        self.messages.push(message);
        self.forget_asked();
    }

    /// Removes all messages after the first `length`, to ask something else or to get another reply.
    pub fn truncate(&mut self, length: usize) {
        self.messages.truncate(length);
        self.forget_asked();
    }

    /// Removes all messages. The KV cache stays, and the next conversation reuses what it has in common with this one.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.forget_asked();
    }

    /// Removes a range of messages, for example a turn, and returns them. The part of the range beyond the last message
    /// is ignored. The range should include the results of all functions that are called in it: results without calls
    /// are refused. See [`Chat::fit`] for a conversation that is too long.
    pub fn remove(&mut self, range: Range<usize>) -> Vec<Message> {
        self.forget_asked();
        let end = range.end.min(self.messages.len());
        self.messages.drain(range.start.min(end)..end).collect()
    }

    /// Removes all messages and returns them. The KV cache stays, as after [`Chat::clear`].
    pub fn take_messages(&mut self) -> Vec<Message> {
        self.forget_asked();
        std::mem::take(&mut self.messages)
    }

    /// Replaces all messages, to continue another conversation or an edited one. The KV cache stays, and the new
    /// conversation reuses what it has in common with the old one.
    pub fn set_messages(&mut self, messages: Vec<Message>) {
        self.messages = messages;
        self.forget_asked();
    }

    /// The tokens of the prompt that [`Chat::reply`] would reply to. Their number is the part of the context that the
    /// conversation takes; [`Session::reusable`] returns how many of them are in the cache already.
    ///
    /// # Errors
    /// [`Error::Message`](crate::Error::Message) if a message cannot become part of a prompt,
    /// [`Error::Argument`](crate::Error::Argument) if an entry of [`tools`](Chat::tools) does not describe a function,
    /// [`Error::Refused`](crate::Error::Refused) if the chat template refuses the conversation,
    /// [`Error::NoToken`](crate::Error::NoToken) if the vocabulary cannot express a character;
    /// [`Error::Template`](crate::Error::Template) or [`Error::Tokenizer`](crate::Error::Tokenizer) if the template or
    /// the tokenizer of the file has a defect.
    pub fn prompt(&self) -> Result<Vec<u32>> {
        self.maker().render(&self.messages).map(|(prompt, _)| prompt)
    }

    /// The session of the conversation.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The session of the conversation, to save or restore it. A reply always follows the messages, whatever the
    /// session holds.
    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Drops the conversation and returns its session.
    pub fn into_session(self) -> Session {
        self.session
    }

    /// Appends a user message and returns the reply as an iterator of events. When the iterator is dropped, whatever
    /// was generated of the reply is appended to the messages. The user's message always stays: if nothing was
    /// generated, it is [unanswered](Chat::unanswered).
    ///
    /// Nothing is computed before the first event is requested, so [`Reply::with_cancel`] can still be called.
    ///
    /// # Errors
    /// The errors of [`Chat::prompt`]; [`Error::ContextFull`](crate::Error::ContextFull) if the conversation is longer
    /// than the context and its oldest turns may not be dropped ([`overflow`](Chat::overflow)), or if the newest turn
    /// alone is longer; [`Error::Argument`](crate::Error::Argument) if an option is out of range. After these errors
    /// the messages are unchanged. Failures of the computation arrive as events.
    pub fn send(&mut self, text: &str) -> Result<Reply<'_>> {
        self.messages.push(Message::user(text));
        match self.prepare() {
            Ok((task, first)) => Ok(self.begin(task, first)),
            Err(error) => {
                self.messages.pop();
                Err(error)
            }
        }
    }

    /// Returns the reply to the current messages as an iterator of events, for example after the results of functions
    /// were [pushed](Chat::push). When the iterator is dropped, whatever was generated of the reply is appended to the
    /// messages.
    ///
    /// # Errors
    /// The errors of [`Chat::send`].
    pub fn reply(&mut self) -> Result<Reply<'_>> {
        let (task, first) = self.prepare()?;
        Ok(self.begin(task, first))
    }

    /// The messages at the end that have no answer: user messages or tool results that the model did not answer,
    /// because its reply was cancelled or failed before the first token. [`Chat::reply`] asks for the answer again,
    /// [`Chat::send`] appends another message, so that the model answers all of them, and [`Chat::truncate`] removes
    /// them.
    pub fn unanswered(&self) -> &[Message] {
        let asks = |message: &Message| ["user", "tool"].contains(&message.role.as_str());
        let before = self.messages.iter().rposition(|message| !asks(message)).map_or(0, |last| last + 1);
        &self.messages[before..]
    }

    /// Checks everything that can be checked before a reply, and returns what generates it and the first turn that
    /// fits.
    fn prepare(&self) -> Result<(GenerationTask<'static>, usize)> {
        self.options.check()?;
        let maker = self.maker();
        let ((prompt, parser), first) = maker.prepare(&self.messages, self.overflow, self.options.max_tokens)?;
        Ok((GenerationTask::new(maker.model, prompt, Some(parser), self.options.clone())?, first))
    }

    /// Begins a reply, and drops the turns before `first`, the first one that fits.
    fn begin(&mut self, mut task: GenerationTask<'static>, first: usize) -> Reply<'_> {
        self.forget_asked();
        let ids = CallIds::after(&self.messages, &[]); // the dropped messages have ids as well
        let gone = drop_before(&mut self.messages, first);
        if !gone.is_empty() {
            task.push(Event::Dropped { messages: gone });
        }
        Reply::new(Generation::of(&mut self.session, task), &mut self.messages, ids)
    }

    /// Makes [`Chat::resume`] ignore the schema of an unfinished [`Chat::ask`], whose reply is no longer the last one.
    fn forget_asked(&mut self) {
        #[cfg(feature = "schema")]
        {
            self.asked = None;
        }
    }

    /// Makes the prompts of the conversation.
    fn maker(&self) -> PromptMaker<'_> {
        PromptMaker {
            model: self.session.model(),
            context: self.session.context(),
            reasoning: self.reasoning,
            tools: &self.tools,
            template_kwargs: &self.template_kwargs,
            begun: None,
        }
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
