//! A conversation.

use crate::ask::Asking;
use crate::cancel::{Cancel, inner};
use crate::count;
use crate::error::WglmError;
use crate::message::{Function, Message};
use crate::model::Model;
use crate::options::Options;
use crate::reply::Reply;
use std::sync::Arc;
use wglm::serde_json::Value;
use wglm::{CacheShape, ChatState, SchemaOptions, Session, SharedChat};

/// What happens when a conversation outgrows its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, uniffi::Enum)]
pub enum Overflow {
    /// The reply is refused with `ContextFull`.
    Refuse,
    /// The oldest turns are dropped, each as a whole. System messages, functions and the newest turn stay. The first
    /// event is then `Dropped`.
    DropOldest {
        /// The tokens of the context that are kept free for the reply; none for a quarter of the context, or for
        /// `Options.max_tokens` if that is less.
        reserve: Option<u32>,
    },
}

/// A conversation. While a reply to it is being generated, calls that change or read more than its messages fail with
/// `Busy`: stop the reply and take its last event first.
#[derive(Debug, uniffi::Object)]
pub struct Chat {
    chat: SharedChat,
}

#[uniffi::export]
impl Chat {
    /// Creates an empty conversation, with a context of its own if `context` is given. Blocks for a moment.
    ///
    /// # Errors
    /// `OutOfMemory` if its cache does not fit; `InvalidFile` if the model has no tokenizer or chat template.
    #[uniffi::constructor(default(context = None))]
    pub fn new(model: &Model, context: Option<u32>) -> Result<Arc<Self>, WglmError> {
        let shape = model.inner.cache();
        let context = context.map_or(shape.context, |context| context as usize);
        let session = Session::with_cache(&model.inner, CacheShape { context, ..shape })?;
        Ok(Arc::new(Self { chat: SharedChat::new(wglm::Chat::with_session(session)?) }))
    }

    /// Appends a user message, and returns the reply. Nothing is computed before its first event is requested, where
    /// all errors arrive.
    pub fn send(&self, text: String) -> Arc<Reply> {
        Reply::new(self.chat.send(&text))
    }

    /// The reply to the messages as they are: after results of functions, or after `truncate` for another one.
    pub fn reply(&self) -> Arc<Reply> {
        Reply::new(self.chat.reply())
    }

    /// The rest of a reply that was cut off. Both parts become one message.
    pub fn resume(&self) -> Arc<Reply> {
        Reply::new(self.chat.resume())
    }

    /// The reply to the messages, with a given beginning.
    pub fn prefill(&self, text: String) -> Arc<Reply> {
        Reply::new(self.chat.prefill(&text))
    }

    /// Appends a user message, and returns the answer as JSON that is valid against `schema`, in which objects have
    /// only the properties that it names. No functions are called.
    ///
    /// # Errors
    /// `InvalidInput` for a schema that is not supported or has no value. All others arrive with the value.
    pub fn ask(&self, text: String, schema: String) -> Result<Arc<Asking>, WglmError> {
        Ok(Asking::new(self.chat.begin_ask_value(&text, &closed(&schema)?)?))
    }

    /// The rest of an answer that `ask` left unfinished, as JSON that is valid against `schema`. Its text begins with
    /// the answer so far, and both parts become one message.
    ///
    /// # Errors
    /// Those of `ask`.
    pub fn resume_ask(&self, schema: String) -> Result<Arc<Asking>, WglmError> {
        Ok(Asking::new(self.chat.begin_resume_ask_value(&closed(&schema)?)?))
    }

    /// The messages so far. While a reply is being generated, they do not contain it.
    pub fn messages(&self) -> Vec<Message> {
        self.chat.messages().iter().map(Message::from).collect()
    }

    /// Appends a message without asking for a reply: the system prompt, or the result of a function.
    ///
    /// # Errors
    /// `Busy` while a reply is being generated.
    pub fn push(&self, message: Message) -> Result<(), WglmError> {
        self.with(|chat| chat.push(message.into()))
    }

    /// Replaces all messages. What the new conversation has in common with the old one is not computed again.
    ///
    /// # Errors
    /// `Busy` while a reply is being generated.
    pub fn set_messages(&self, messages: Vec<Message>) -> Result<(), WglmError> {
        self.with(|chat| chat.set_messages(messages.into_iter().map(wglm::Message::from).collect()))
    }

    /// Removes all messages after the first `length`.
    ///
    /// # Errors
    /// `Busy` while a reply is being generated.
    pub fn truncate(&self, length: u32) -> Result<(), WglmError> {
        self.with(|chat| chat.truncate(length as usize))
    }

    /// Removes `length` messages from `start` on, and returns them. What is beyond the last message is ignored.
    ///
    /// # Errors
    /// `Busy` while a reply is being generated.
    pub fn remove(&self, start: u32, length: u32) -> Result<Vec<Message>, WglmError> {
        let range = start as usize..start.saturating_add(length) as usize;
        self.with(|chat| chat.remove(range).iter().map(Message::from).collect())
    }

    /// The messages at the end that have no answer, because a reply ended before its first token.
    ///
    /// # Errors
    /// `Busy` while a reply is being generated.
    pub fn unanswered(&self) -> Result<Vec<Message>, WglmError> {
        self.with(|chat| chat.unanswered().iter().map(Message::from).collect())
    }

    /// Sets how the next replies are generated.
    ///
    /// # Errors
    /// `InvalidInput` for a constraint that is not supported; `Busy` while a reply is being generated.
    pub fn set_options(&self, options: Options) -> Result<(), WglmError> {
        self.with(|chat| {
            let sampling = chat.session().model().sampling()?;
            chat.options = options.over(sampling)?;
            Ok(())
        })?
    }

    /// Sets the functions that the model may call.
    ///
    /// # Errors
    /// `InvalidInput` for parameters that are not JSON; `Busy` while a reply is being generated. Other mistakes are
    /// errors of the next reply.
    pub fn set_functions(&self, functions: Vec<Function>) -> Result<(), WglmError> {
        let tools = functions.iter().map(Function::describe).collect::<Result<Vec<_>, _>>()?;
        self.with(|chat| chat.tools = tools)
    }

    /// Sets whether the model thinks before it answers; none leaves this to the model's template.
    ///
    /// # Errors
    /// `Busy` while a reply is being generated.
    pub fn set_thinking(&self, thinking: Option<bool>) -> Result<(), WglmError> {
        self.with(|chat| chat.reasoning = thinking)
    }

    /// Sets what happens when the conversation outgrows its context.
    ///
    /// # Errors
    /// `Busy` while a reply is being generated.
    pub fn set_overflow(&self, overflow: Overflow) -> Result<(), WglmError> {
        let overflow = match overflow {
            Overflow::Refuse => wglm::Overflow::Refuse,
            Overflow::DropOldest { reserve } => {
                wglm::Overflow::DropOldest { reserve: reserve.map(|reserve| reserve as usize) }
            }
        };
        self.with(|chat| chat.overflow = overflow)
    }

    /// Sets further variables for the chat template, such as `clear_thinking`: a JSON object.
    ///
    /// # Errors
    /// `InvalidInput` for anything else; `Busy` while a reply is being generated.
    pub fn set_template_variables(&self, json: String) -> Result<(), WglmError> {
        let variables =
            serde_json::from_str(&json).map_err(|error| WglmError::not_json("the template's variables", &error))?;
        self.with(|chat| chat.template_kwargs = variables)
    }

    /// Drops the oldest turns until `reserve` tokens of the context are free, and returns the dropped messages.
    ///
    /// # Errors
    /// `ContextFull` if the newest turn alone is too long; `Busy` while a reply is being generated.
    pub fn fit(&self, reserve: u32) -> Result<Vec<Message>, WglmError> {
        self.with(|chat| Ok(chat.fit(reserve as usize)?.iter().map(Message::from).collect()))?
    }

    /// The tokens of the context that the next prompt would take.
    ///
    /// # Errors
    /// `InvalidInput` if a message or function cannot become part of a prompt; `Busy` while a reply is being generated.
    pub fn prompt_tokens(&self) -> Result<u32, WglmError> {
        self.with(|chat| Ok(count(chat.prompt()?.len())))?
    }

    /// The context in tokens.
    ///
    /// # Errors
    /// `Busy` while a reply is being generated.
    pub fn context(&self) -> Result<u32, WglmError> {
        self.with(|chat| count(chat.session().context()))
    }

    /// The conversation as JSON: messages, functions, template variables and options.
    ///
    /// # Errors
    /// `Busy` while a reply is being generated.
    pub fn save(&self) -> Result<String, WglmError> {
        let state = self.with(|chat| chat.save())?;
        serde_json::to_string(&state).map_err(|error| WglmError::not_json("the conversation", &error))
    }

    /// Replaces the conversation by one that `save` returned.
    ///
    /// # Errors
    /// `InvalidInput` for anything else; `Busy` while a reply is being generated.
    pub fn restore(&self, json: String) -> Result<(), WglmError> {
        let state: ChatState =
            serde_json::from_str(&json).map_err(|error| WglmError::not_json("the conversation", &error))?;
        self.with(|chat| chat.restore(state))
    }

    /// Writes the cache to a file, so that the conversation need not be computed again when it is continued later.
    /// Blocks.
    ///
    /// # Errors
    /// `Io`, `DeviceLost`, `Cancelled`; `Busy` while a reply is being generated.
    #[uniffi::method(default(cancel = None))]
    pub fn save_snapshot(&self, path: String, cancel: Option<Arc<Cancel>>) -> Result<(), WglmError> {
        Ok(self.with(|chat| chat.session_mut().save_snapshot_with(path, &inner(cancel)))??)
    }

    /// Reads the cache from a file that `save_snapshot` wrote. After an error the conversation continues without it.
    /// Blocks.
    ///
    /// # Errors
    /// `InvalidSnapshot` if it is damaged or belongs to another model, `ContextFull` if the context is too small;
    /// `NotFound`, `Io`, `DeviceLost`, `Cancelled`; `Busy` while a reply is being generated.
    #[uniffi::method(default(cancel = None))]
    pub fn load_snapshot(&self, path: String, cancel: Option<Arc<Cancel>>) -> Result<(), WglmError> {
        Ok(self.with(|chat| chat.session_mut().load_snapshot_with(path, &inner(cancel)))??)
    }

    /// Moves the conversation to the same model on another device, after `DeviceLost`. Its tokens are computed again
    /// with the next reply.
    ///
    /// # Errors
    /// `InvalidInput` if it is another model; `OutOfMemory`; `Busy` while a reply is being generated.
    pub fn move_to(&self, model: &Model) -> Result<(), WglmError> {
        Ok(self.with(|chat| chat.session_mut().move_to(&model.inner))??)
    }
}

/// A schema in which objects have only the properties that it names.
fn closed(schema: &str) -> Result<Value, WglmError> {
    let schema = serde_json::from_str(schema).map_err(|error| WglmError::not_json("the schema", &error))?;
    Ok(SchemaOptions::default().with_closed(true).put_into(schema))
}

impl Chat {
    fn with<T>(&self, act: impl FnOnce(&mut wglm::Chat) -> T) -> Result<T, WglmError> {
        Ok(self.chat.with(act)?)
    }
}
