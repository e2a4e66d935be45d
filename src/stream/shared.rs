//! A conversation that streams borrow, and give back however they end.

use super::{BoxedChooser, ReplyRequest, ReplyStream};
use crate::chat::Chat;
use crate::error::{Error, Result};
use crate::generate::{Cancel, Event};
use crate::text::Message;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// A conversation whose replies are streams. Clones share it, so that it outlives any task: when a stream is dropped in
/// the middle of a reply, the messages keep what came, the cache stays, and the next reply goes on from there.
///
/// ```
/// use std::future::poll_fn;
/// use std::pin::Pin;
/// use wglm::stream::{SharedChat, Stream};
///
/// # async fn example(chat: wglm::Chat) -> wglm::Result<()> {
/// let chat = SharedChat::new(chat);
/// let mut events = chat.send("Tell me a story about an owl.");
/// poll_fn(|context| Pin::new(&mut events).poll_next(context)).await;
/// drop(events); // as a runtime drops a task that is aborted
/// chat.with(|chat| assert_eq!(chat.messages()[0].text(), "Tell me a story about an owl."))?;
/// # Ok(())
/// # }
/// # #[cfg(feature = "demo-model")]
/// # fn main() -> wglm::Result<()> {
/// # use wglm::{Gguf, Gpu, GpuOptions, LoadOptions, Model};
/// # let gpu = Gpu::open(&GpuOptions::default())?;
/// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
/// # pollster::block_on(example(wglm::Chat::new(&model)?))
/// # }
/// # #[cfg(not(feature = "demo-model"))]
/// # fn main() {}
/// ```
#[derive(Debug, Clone)]
pub struct SharedChat {
    slot: Arc<ChatSlot>,
}

impl SharedChat {
    /// Shares a conversation.
    pub fn new(chat: Chat) -> Self {
        let messages = chat.messages().to_vec();
        Self { slot: Arc::new(ChatSlot { chat: Mutex::new(Some(chat)), messages: Mutex::new(messages) }) }
    }

    /// As [`Chat::send`], as a stream. All errors arrive as events, [`Error::Argument`] if a reply is on its way.
    pub fn send(&self, text: &str) -> ReplyStream {
        ReplyStream::new(self.slot.clone(), ReplyRequest::Text(text.to_owned()))
    }

    /// As [`Chat::reply`], as a stream.
    pub fn reply(&self) -> ReplyStream {
        ReplyStream::new(self.slot.clone(), ReplyRequest::Messages)
    }

    /// As [`Chat::prefill`], as a stream.
    pub fn prefill(&self, text: &str) -> ReplyStream {
        ReplyStream::new(self.slot.clone(), ReplyRequest::Prefill(text.to_owned()))
    }

    /// As [`Chat::resume`], as a stream.
    pub fn resume(&self) -> ReplyStream {
        ReplyStream::new(self.slot.clone(), ReplyRequest::Resume)
    }

    /// Does something with the conversation between two replies. Its messages are told anew after that.
    ///
    /// # Errors
    /// [`Error::Argument`] while a reply is on its way (until the last event was told), or after the conversation was taken out.
    pub fn with<T>(&self, act: impl FnOnce(&mut Chat) -> T) -> Result<T> {
        self.slot.with(act)
    }

    /// The messages, also while a reply is on its way, of which they have nothing until it is over.
    pub fn messages(&self) -> Vec<Message> {
        self.slot.messages()
    }

    /// Takes the conversation out: there is none for the clones any more.
    ///
    /// # Errors
    /// As [`SharedChat::with`].
    pub fn take(&self) -> Result<Chat> {
        self.slot.take()
    }
}

/// The conversation's place. A thread holds it while it generates.
#[derive(Debug)]
pub struct ChatSlot {
    chat: Mutex<Option<Chat>>,
    /// As they were when the reply began or ended.
    messages: Mutex<Vec<Message>>,
}

/// What is held is sound after a panic too: messages are only replaced, and a conversation is brought to its messages.
fn lock<T>(place: &Mutex<T>) -> MutexGuard<'_, T> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ChatSlot {
    fn chat(&self) -> Result<MutexGuard<'_, Option<Chat>>> {
        match self.chat.try_lock() {
            Ok(chat) => Ok(chat),
            Err(TryLockError::Poisoned(chat)) => Ok(chat.into_inner()),
            Err(TryLockError::WouldBlock) => Err(missing("one that is on its way")),
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
        let chat = held.as_mut().ok_or_else(gone)?;
        let done = act(chat);
        *lock(&self.messages) = chat.messages().to_vec();
        Ok(done)
    }

    /// Has the conversation reply. The last event comes when the conversation is free again.
    pub fn reply(
        &self,
        asked: ReplyRequest,
        cancel: &Cancel,
        chooser: Option<BoxedChooser>,
        send: impl Fn(Result<Event>),
    ) {
        let ended = self.with(|chat| {
            let reply = match &asked {
                ReplyRequest::Text(text) => chat.send(text)?,
                ReplyRequest::Messages => chat.reply()?,
                ReplyRequest::Prefill(text) => chat.prefill(text)?,
                ReplyRequest::Resume => chat.resume()?,
            };
            *lock(&self.messages) = reply.messages().to_vec();
            let reply = reply.with_cancel(cancel);
            let reply = match chooser {
                Some(chooser) => reply.with_chooser(chooser),
                None => reply,
            };
            let mut last = None;
            for event in reply {
                match event? {
                    Event::Done(stats) => last = Some(Event::Done(stats)),
                    event => send(Ok(event)),
                }
            }
            Ok(last)
        });
        match ended.flatten() {
            Ok(last) => last.into_iter().for_each(|event| send(Ok(event))),
            Err(error) => send(Err(error)),
        }
    }
}

fn missing(found: &str) -> Error {
    let expected = "a conversation without a reply on its way".to_owned();
    Error::Argument { argument: "chat", expected, found: found.to_owned() }
}

fn gone() -> Error {
    missing("one that was taken out")
}
