//! Replies that are values of a type, for callers that must not block: polled in each frame, or awaited (feature
//! `schema`).

use crate::cancel::Cancel;
use crate::chat::{AskError, ChatState, VALUE, constraint_of, last_answer, read, whole_answer};
use crate::constrain::Constraint;
use crate::error::{Error, Result};
use crate::generate::{Event, Stop};
use crate::owned::{OwnedReply, SharedChat};
use crate::scheduler::{ScheduledReply, Scheduler};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::borrow::Cow;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A reply that will be a value: what [`SharedChat::begin_ask`], [`SharedChat::begin_resume_ask`] and
/// [`Scheduler::begin_ask`] return. A window calls [`try_value`](Self::try_value) in each frame, an asynchronous task
/// awaits the value, and [`wait`](Self::wait) blocks. Nothing is computed until one of these happens. Dropping it
/// cancels the reply.
///
/// ```
/// use wglm::{AskError, Asking, SharedChat};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Sum {
///     #[schemars(range(min = 0, max = 99))]
///     sum: u32,
/// }
///
/// /// In an asynchronous task, on any runtime.
/// async fn sum(chat: &SharedChat, question: &str) -> Result<u32, AskError> {
///     Ok(chat.begin_ask::<Sum>(question)?.await?.sum)
/// }
///
/// /// In each frame of a window.
/// fn receive(asking: &mut Asking<Sum>) -> Option<Result<u32, AskError>> {
///     match asking.try_value() {
///         std::task::Poll::Ready(value) => Some(value.map(|value| value.sum)),
///         std::task::Poll::Pending => None, // it shows `asking.text()` meanwhile
///     }
/// }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use wglm::{Chat, Gguf, Gpu, GpuOptions, LoadOptions, Model};
/// # let gpu = Gpu::open(&GpuOptions::default())?;
/// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
/// # let mut chat = Chat::new(&model)?;
/// # chat.reasoning = Some(false);
/// # let chat = SharedChat::new(chat);
/// # assert!(pollster::block_on(sum(&chat, "What is seven plus five?"))? <= 99);
/// # let mut asking = chat.begin_ask("What is two plus two?")?;
/// # let sum = loop {
/// #     if let Some(sum) = receive(&mut asking) {
/// #         break sum?;
/// #     }
/// #     std::thread::sleep(std::time::Duration::from_millis(1));
/// # };
/// # assert!(sum <= 99 && chat.messages().len() == 4);
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is computed before the value is waited for, polled or awaited"]
pub struct Asking<T> {
    reply: AnyReply,
    /// The name of the value in errors.
    name: Cow<'static, str>,
    text: String,
    /// How many bytes of the text this reply continues, if it continues an answer.
    before: Option<usize>,
    /// Whether the value or an error was returned.
    over: bool,
    value: PhantomData<fn() -> T>,
}

enum AnyReply {
    Owned(OwnedReply),
    Scheduled(ScheduledReply),
}

impl<T: DeserializeOwned> Asking<T> {
    fn new(reply: AnyReply, name: Cow<'static, str>) -> Self {
        Self { reply, name, text: String::new(), before: None, over: false, value: PhantomData }
    }

    fn resuming(chat: &SharedChat, constraint: Constraint, name: Cow<'static, str>) -> Self {
        let (reply, text) = (AnyReply::Owned(chat.resume_constrained(constraint)), last_answer(&chat.messages()));
        Self { before: Some(text.len()), text, ..Self::new(reply, name) }
    }

    /// Lets `cancel` stop the reply, even if it was cancelled before this call.
    pub fn with_cancel(self, cancel: &Cancel) -> Self {
        self.cancel().join(cancel);
        self
    }

    /// A handle that stops this reply only, from any thread. The value is then [`AskError::Unfinished`].
    pub fn cancel(&self) -> Cancel {
        match &self.reply {
            AnyReply::Owned(reply) => reply.cancel(),
            AnyReply::Scheduled(reply) => reply.cancel(),
        }
    }

    /// The answer so far: the beginning of the value's JSON.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The value, if the reply has ended. This does not wait. The value is returned once; later calls return
    /// [`Error::Argument`].
    ///
    /// # Errors
    /// Inside the result: the errors of [`SharedChat::ask`] or [`Scheduler::ask`].
    pub fn try_value(&mut self) -> Poll<Result<T, AskError>> {
        self.poll_value(None)
    }

    /// Waits for the value.
    ///
    /// # Errors
    /// The errors of [`SharedChat::ask`] or [`Scheduler::ask`]; [`Error::Argument`] if it was returned before.
    pub fn wait(mut self) -> Result<T, AskError> {
        loop {
            self.check_open()?;
            let event = match &mut self.reply {
                AnyReply::Owned(reply) => reply.next(),
                AnyReply::Scheduled(reply) => reply.next(),
            };
            if let Some(value) = self.take(event) {
                return value;
            }
        }
    }

    fn poll_value(&mut self, waker: Option<&Waker>) -> Poll<Result<T, AskError>> {
        self.check_open()?;
        loop {
            let event = match &mut self.reply {
                AnyReply::Owned(reply) => reply.poll(waker),
                AnyReply::Scheduled(reply) => reply.poll(waker),
            };
            let Poll::Ready(event) = event else { return Poll::Pending };
            if let Some(value) = self.take(event) {
                return Poll::Ready(value);
            }
        }
    }

    /// Takes an event, and makes the value after the last one.
    fn take(&mut self, event: Option<Result<Event>>) -> Option<Result<T, AskError>> {
        let ended = match event {
            Some(Ok(Event::Text(piece))) => {
                self.text.push_str(&piece);
                return None;
            }
            Some(Ok(Event::Done(stats))) => Ok(stats.stop),
            Some(Ok(_)) => return None,
            Some(Err(error)) => Err(error),
            None => Ok(Stop::Cancelled),
        };
        self.over = true;
        if let (Some(before), AnyReply::Owned(reply)) = (self.before, &self.reply) {
            let (before, more) = self.text.split_at(before);
            self.text = whole_answer(&reply.messages(), before.to_owned(), more);
        }
        Some(ended.map_err(AskError::from).and_then(|stop| read(&self.name, (self.text.clone(), stop))))
    }

    fn check_open(&self) -> Result<()> {
        if !self.over {
            return Ok(());
        }
        Err(Error::argument("asking", "a value that has not been returned yet", "one that was returned before"))
    }
}

impl<T: DeserializeOwned> Future for Asking<T> {
    type Output = Result<T, AskError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().poll_value(Some(context.waker()))
    }
}

impl<T> std::fmt::Debug for Asking<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asking").field("name", &self.name).field("text", &self.text).finish_non_exhaustive()
    }
}

impl SharedChat {
    /// Like [`SharedChat::ask`], without waiting: the value is polled or awaited. An unfinished reply is part of the
    /// conversation: [`begin_resume_ask`](Self::begin_resume_ask) continues it and returns the value, and
    /// [`SharedChat::resume`] continues it with the same schema and returns its events.
    ///
    /// # Errors
    /// [`Error::Constraint`] for a type whose schema is not supported or has no value. All others arrive in place of
    /// the value.
    pub fn begin_ask<T: DeserializeOwned + JsonSchema>(&self, text: &str) -> Result<Asking<T>> {
        Ok(Asking::new(AnyReply::Owned(self.constrained(text, constraint_of::<T>()?)), T::schema_name()))
    }

    /// Like [`begin_ask`](Self::begin_ask), but takes the JSON schema as a value and returns the answer as one: see
    /// [`Chat::ask_value`](crate::Chat::ask_value).
    ///
    /// # Errors
    /// See [`begin_ask`](Self::begin_ask).
    pub fn begin_ask_value(&self, text: &str, schema: &Value) -> Result<Asking<Value>> {
        let constraint = Constraint::json_schema(schema.clone())?;
        Ok(Asking::new(AnyReply::Owned(self.constrained(text, constraint)), VALUE.into()))
    }

    /// Like [`Chat::resume_ask`](crate::Chat::resume_ask), without waiting: the value of the unfinished reply is polled
    /// or awaited. [`Asking::text`] begins with the answer as it was at this call.
    ///
    /// # Errors
    /// See [`begin_ask`](Self::begin_ask).
    pub fn begin_resume_ask<T: DeserializeOwned + JsonSchema>(&self) -> Result<Asking<T>> {
        Ok(Asking::resuming(self, constraint_of::<T>()?, T::schema_name()))
    }

    /// Like [`begin_resume_ask`](Self::begin_resume_ask), for an unfinished [`begin_ask_value`](Self::begin_ask_value).
    ///
    /// # Errors
    /// See [`begin_ask`](Self::begin_ask).
    pub fn begin_resume_ask_value(&self, schema: &Value) -> Result<Asking<Value>> {
        Ok(Asking::resuming(self, Constraint::json_schema(schema.clone())?, VALUE.into()))
    }
}

impl Scheduler {
    /// Like [`Scheduler::ask`], without waiting: the value is polled or awaited.
    ///
    /// # Errors
    /// The errors of [`Scheduler::chat`], and [`Error::Constraint`] for a type whose schema is not supported or has no
    /// value. All others arrive in place of the value.
    pub fn begin_ask<T: DeserializeOwned + JsonSchema>(&self, request: ChatState) -> Result<Asking<T>> {
        let reply = self.constrained(request, constraint_of::<T>()?)?;
        Ok(Asking::new(AnyReply::Scheduled(reply), T::schema_name()))
    }

    /// Like [`begin_ask`](Self::begin_ask), but takes the JSON schema as a value and returns the answer as one: see
    /// [`Chat::ask_value`](crate::Chat::ask_value).
    ///
    /// # Errors
    /// See [`begin_ask`](Self::begin_ask).
    pub fn begin_ask_value(&self, request: ChatState, schema: &Value) -> Result<Asking<Value>> {
        let reply = self.constrained(request, Constraint::json_schema(schema.clone())?)?;
        Ok(Asking::new(AnyReply::Scheduled(reply), VALUE.into()))
    }
}
