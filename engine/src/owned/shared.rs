//! A conversation that replies borrow and return, however they end.

use super::{BoxedChooser, OwnedReply, ReplyRequest};
use crate::cancel::Cancel;
#[cfg(feature = "schema")]
use crate::chat::AskError;
use crate::chat::{Chat, Reply};
#[cfg(feature = "schema")]
use crate::constrain::Constraint;
use crate::error::{Error, Result};
use crate::generate::Event;
use crate::gpu::Process;
use crate::text::Message;
use crate::threads::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// How long a reply waits for a call of [`SharedChat::with`] that has begun before it.
const WAIT: Duration = Duration::from_millis(200);

/// A conversation whose replies own themselves. Clones share it, so it outlives any one task: if a reply is dropped
/// before its end, the messages keep the generated part, the cache stays, and the next reply continues from there.
///
/// ```
/// use wglm::SharedChat;
///
/// # fn main() -> wglm::Result<()> {
/// # use wglm::{Chat, Gguf, Gpu, GpuOptions, LoadOptions, Model};
/// # let gpu = Gpu::open(&GpuOptions::default())?;
/// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
/// let chat = SharedChat::new(Chat::new(&model)?);
/// let mut reply = chat.send("Tell me a story about an owl.");
/// for event in reply.by_ref().take(5) {
///     println!("{:?}", event?);
/// }
/// drop(reply); // as a runtime drops a task that is aborted
/// chat.with(|chat| assert_eq!(chat.messages()[0].text(), "Tell me a story about an owl."))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SharedChat {
    slot: Arc<ChatSlot>,
}

impl SharedChat {
    /// Makes a conversation shareable.
    pub fn new(chat: Chat) -> Self {
        let (process, messages) = (chat.session().model().gpu().process(), chat.messages().to_vec());
        let (chat, messages) = (Mutex::new(Some(chat)), Mutex::new(messages));
        Self { slot: Arc::new(ChatSlot { process, chat, replying: AtomicBool::new(false), messages }) }
    }

    /// Like [`Chat::send`]. All errors arrive as events; the error is [`Error::ChatInUse`] if another reply is being
    /// generated, or if a call of [`SharedChat::with`] or [`SharedChat::ask`] on another thread takes more than 200 ms
    /// longer.
    pub fn send(&self, text: &str) -> OwnedReply {
        OwnedReply::new(self.slot.clone(), ReplyRequest::Text(text.to_owned()))
    }

    /// Like [`Chat::reply`], with errors as events, as for [`send`](Self::send).
    pub fn reply(&self) -> OwnedReply {
        OwnedReply::new(self.slot.clone(), ReplyRequest::Messages)
    }

    /// Like [`Chat::prefill`], with errors as events, as for [`send`](Self::send).
    pub fn prefill(&self, text: &str) -> OwnedReply {
        OwnedReply::new(self.slot.clone(), ReplyRequest::Prefill(text.to_owned()))
    }

    /// Like [`Chat::resume`], with errors as events, as for [`send`](Self::send).
    pub fn resume(&self) -> OwnedReply {
        OwnedReply::new(self.slot.clone(), ReplyRequest::Resume)
    }

    /// A reply that answers the user's message with a match of a constraint, without functions. If it is unfinished, it
    /// can be resumed.
    #[cfg(feature = "schema")]
    pub(crate) fn constrained(&self, text: &str, constraint: Constraint) -> OwnedReply {
        OwnedReply::new(self.slot.clone(), ReplyRequest::Ask(text.to_owned(), constraint))
    }

    /// The rest of an unfinished reply, which then matches a constraint.
    #[cfg(feature = "schema")]
    pub(crate) fn resume_constrained(&self, constraint: Constraint) -> OwnedReply {
        OwnedReply::new(self.slot.clone(), ReplyRequest::ResumeAsk(constraint))
    }

    /// Like [`Chat::ask_with`], which waits for the reply; [`SharedChat::begin_ask`] does not. To call the related
    /// functions of [`Chat`], use [`SharedChat::with`].
    ///
    /// # Errors
    /// The errors of [`Chat::ask_with`]; [`AskError::Failed`] with the errors of [`SharedChat::with`].
    #[cfg(feature = "schema")]
    pub fn ask<T: serde::de::DeserializeOwned + schemars::JsonSchema>(
        &self,
        text: &str,
        cancel: &Cancel,
    ) -> Result<T, AskError> {
        self.with(|chat| chat.ask_with(text, cancel))?
    }

    /// Calls `act` with the conversation, between two replies. [`SharedChat::messages`] returns the changed messages
    /// afterwards.
    ///
    /// # Errors
    /// [`Error::ChatInUse`] while a reply is being generated, that is from the first request for an event until its
    /// last event was sent, and while another thread is inside this function; [`Error::Argument`] after the
    /// conversation was taken out.
    pub fn with<T>(&self, act: impl FnOnce(&mut Chat) -> T) -> Result<T> {
        self.slot.with(act)
    }

    /// The messages of the conversation. While a reply is being generated, they do not contain it.
    pub fn messages(&self) -> Vec<Message> {
        self.slot.messages()
    }

    /// Takes the conversation out. All clones are then empty.
    ///
    /// # Errors
    /// The errors of [`SharedChat::with`].
    pub fn take(&self) -> Result<Chat> {
        self.slot.take()
    }
}

/// Holds the conversation. A thread locks it while it generates. A panic of that thread leaves both parts valid: the
/// copy of the messages is only replaced as a whole, and before each reply the session is synchronised with the
/// messages.
#[derive(Debug)]
pub struct ChatSlot {
    /// The process in which the conversation was made shareable.
    process: Process,
    chat: Mutex<Option<Chat>>,
    /// Whether a reply uses the conversation, or will once its thread runs.
    replying: AtomicBool,
    /// A copy of the messages as they were when the last reply began or ended, which is readable while a thread
    /// generates.
    messages: Mutex<Vec<Message>>,
}

impl ChatSlot {
    /// # Errors
    /// [`Error::Forked`] in a process that was forked since.
    pub fn check_process(&self) -> Result<()> {
        self.process.check()
    }

    /// Reserves the conversation for a reply, so that no call takes it before the reply's thread runs.
    ///
    /// # Errors
    /// [`Error::ChatInUse`] if another reply has it.
    pub fn reserve(self: &Arc<Self>) -> Result<Reservation> {
        match self.replying.swap(true, Ordering::AcqRel) {
            true => Err(Error::ChatInUse),
            false => Ok(Reservation(self.clone())),
        }
    }

    fn chat(&self) -> Result<MutexGuard<'_, Option<Chat>>> {
        if self.replying.load(Ordering::Acquire) { Err(Error::ChatInUse) } else { self.try_lock() }
    }

    fn try_lock(&self) -> Result<MutexGuard<'_, Option<Chat>>> {
        match self.chat.try_lock() {
            Ok(chat) => Ok(chat),
            Err(TryLockError::Poisoned(chat)) => Ok(chat.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Error::ChatInUse),
        }
    }

    pub fn messages(&self) -> Vec<Message> {
        lock(&self.messages).clone()
    }

    pub fn take(&self) -> Result<Chat> {
        self.chat()?.take().ok_or_else(gone)
    }

    pub fn with<T>(&self, act: impl FnOnce(&mut Chat) -> T) -> Result<T> {
        let mut held = self.chat()?;
        self.act(&mut held, act)
    }

    fn act<T>(&self, held: &mut Option<Chat>, act: impl FnOnce(&mut Chat) -> T) -> Result<T> {
        let chat = held.as_mut().ok_or_else(gone)?;
        let done = act(chat);
        *lock(&self.messages) = chat.messages().to_vec();
        Ok(done)
    }
}

/// The conversation, reserved for a reply.
pub struct Reservation(Arc<ChatSlot>);

impl Reservation {
    /// Generates the reply and sends its events. The last event is sent once the conversation is free for the next
    /// reply.
    pub fn reply(
        self,
        asked: ReplyRequest,
        cancel: &Cancel,
        chooser: Option<BoxedChooser>,
        send: impl Fn(Result<Event>),
    ) {
        let take = |reply: Reply<'_>| {
            *lock(&self.0.messages) = reply.messages().to_vec();
            let reply = reply.with_cancel(cancel);
            let reply = match chooser {
                Some(chooser) => reply.with_chooser(chooser),
                None => reply,
            };
            let mut last = None;
            for event in reply {
                match event? {
                    Event::Done(stats) => last = Some(stats),
                    event => send(Ok(event)),
                }
            }
            Ok(last)
        };
        let reply = |chat: &mut Chat| match asked {
            ReplyRequest::Text(text) => take(chat.send(&text)?),
            #[cfg(feature = "schema")]
            ReplyRequest::Ask(text, constraint) => chat.ask_in_events(&text, constraint, take),
            ReplyRequest::Messages => take(chat.reply()?),
            ReplyRequest::Prefill(text) => take(chat.prefill(&text)?),
            ReplyRequest::Resume => take(chat.resume()?),
            #[cfg(feature = "schema")]
            ReplyRequest::ResumeAsk(constraint) => chat.resume_ask_in_events(constraint, take),
        };
        let ended = self.wait().and_then(|mut held| self.0.act(&mut held, reply)).flatten();
        drop(self);
        match ended {
            Ok(last) => last.into_iter().for_each(|stats| send(Ok(Event::Done(stats)))),
            Err(error) => send(Err(error)),
        }
    }

    /// The conversation. Waits a while for a call that has it.
    fn wait(&self) -> Result<MutexGuard<'_, Option<Chat>>> {
        let since = Instant::now();
        loop {
            match self.0.try_lock() {
                Err(Error::ChatInUse) if since.elapsed() < WAIT => std::thread::sleep(Duration::from_millis(1)),
                locked => return locked,
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.0.replying.store(false, Ordering::Release);
    }
}

fn gone() -> Error {
    Error::argument("chat", "a conversation", "none, because it was already taken")
}
