//! Replies as asynchronous streams (feature `stream`), for any runtime or none.
//!
//! An iterator's `next` blocks, whereas a stream's is awaited, so one type cannot be both: a stream has its own type.

pub use futures_core::Stream;

use crate::error::Result;
use crate::generate::Event;
use crate::owned::OwnedReply;
use crate::scheduler::ScheduledReply;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A reply as an asynchronous stream of events, made by [`OwnedReply::into_stream`] and
/// [`ScheduledReply::into_stream`]. Polling never blocks. Dropping it cancels the reply.
///
/// ```
/// use std::future::poll_fn;
/// use std::pin::Pin;
/// use wglm::{Event, SharedChat, Stream};
///
/// # async fn example(chat: SharedChat) -> wglm::Result<()> {
/// let mut events = chat.send("Tell me a story about an owl.").into_stream();
/// // `while let Some(event) = events.next().await` with the `StreamExt` of one's choice
/// while let Some(event) = poll_fn(|context| Pin::new(&mut events).poll_next(context)).await {
///     if let Event::Text(text) = event? {
///         print!("{text}");
///     }
/// }
/// # Ok(())
/// # }
/// # fn main() -> wglm::Result<()> {
/// # use wglm::{Chat, Gguf, Gpu, GpuOptions, LoadOptions, Model};
/// # let gpu = Gpu::open(&GpuOptions::default())?;
/// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
/// # let mut chat = Chat::new(&model)?;
/// # chat.options.max_tokens = Some(8);
/// # pollster::block_on(example(SharedChat::new(chat)))
/// # }
/// ```
#[derive(Debug)]
pub struct ReplyStream<R = OwnedReply> {
    reply: R,
}

impl<R> ReplyStream<R> {
    /// The reply.
    pub fn reply(&self) -> &R {
        &self.reply
    }

    /// The reply, no longer as a stream.
    pub fn into_reply(self) -> R {
        self.reply
    }
}

impl OwnedReply {
    /// The reply as an asynchronous stream (feature `stream`).
    pub fn into_stream(self) -> ReplyStream {
        ReplyStream { reply: self }
    }
}

impl ScheduledReply {
    /// The reply as an asynchronous stream (feature `stream`).
    pub fn into_stream(self) -> ReplyStream<Self> {
        ReplyStream { reply: self }
    }
}

impl Stream for ReplyStream {
    type Item = Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.reply.poll_next(context)
    }
}

impl Stream for ReplyStream<ScheduledReply> {
    type Item = Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.reply.poll_next(context)
    }
}
