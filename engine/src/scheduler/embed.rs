//! Embeddings: the means of the hidden states of texts, computed between the steps of replies.

use super::{ScheduledReply, Scheduler};
use crate::cancel::Cancel;
use crate::chat::CallIds;
use crate::error::{Error, Result};
use crate::generate::{Event, GenerationTask};
use crate::session::HiddenMean;

impl Scheduler {
    /// The mean {width} of the [hidden states](crate::Session::hidden) of a text's tokens, as
    /// [`Session::embed`](crate::Session::embed) computes it. The text takes its turn like a request for a reply. It is
    /// computed in parts, between the steps of replies, and its slot is empty afterwards. `cancel` stops it.
    ///
    /// ```
    /// # fn main() -> wglm::Result<()> {
    /// # use wglm::{Gguf, Gpu, GpuOptions, LoadOptions, Model};
    /// # let gpu = Gpu::open(&GpuOptions::default())?;
    /// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
    /// use wglm::{Cancel, Scheduler, SchedulerOptions};
    ///
    /// let scheduler = Scheduler::new(&model, &SchedulerOptions { sessions: 1, ..SchedulerOptions::default() })?;
    /// let mean = scheduler.embed("An owl sat on a branch.", &Cancel::default())?;
    /// assert_eq!(mean.len(), model.config().width);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for a text without tokens, [`Error::NoToken`], [`Error::Tokenizer`], [`Error::ContextFull`],
    /// [`Error::Cancelled`]; [`Error::Busy`] if too many requests wait; any error from the device.
    pub fn embed(&self, text: &str, cancel: &Cancel) -> Result<Vec<f32>> {
        let tokens = self.model.tokenizer()?.encode(text, false)?;
        self.embed_tokens(tokens)?.with_cancel(cancel).embedding(&mut |_| {})
    }

    /// The maximum host memory in bytes that the hidden states of a text of `tokens` tokens take while the text is
    /// [embedded](Self::embed).
    pub fn embedding_memory(&self, tokens: usize) -> usize {
        HiddenMean::memory(tokens, self.model.config().width)
    }

    /// Requests the mean of the hidden states of tokens, as [`embed`](Self::embed) returns it. The events are those of
    /// a reply: [`Event::Prompt`] while the tokens are computed, all of them, whatever the cache holds; then
    /// [`Event::Embedding`], unless it was cancelled; then [`Event::Done`]. Nothing is computed before an event is
    /// requested.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are no tokens; [`Error::TokenOutOfRange`], [`Error::ContextFull`]; [`Error::Busy`]
    /// if too many requests wait.
    pub fn embed_tokens(&self, tokens: Vec<u32>) -> Result<ScheduledReply> {
        let count = tokens.len();
        if count == 0 {
            return Err(Error::argument("text", "a text of at least one token", "an empty one"));
        }
        self.check_prompt(&tokens)?;
        let task = GenerationTask::mean_of(&self.model, tokens)?;
        self.submit(task, CallIds::default(), count, false)
    }
}

impl ScheduledReply {
    /// Waits for the vector of a request by [`Scheduler::embed_tokens`], and calls `visit` with each event.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if it was cancelled; any error among the events.
    pub fn embedding(self, visit: &mut dyn FnMut(&Event)) -> Result<Vec<f32>> {
        let mut mean = Err(Error::Cancelled);
        for event in self {
            let event = event?;
            visit(&event);
            if let Event::Embedding(value) = event {
                mean = Ok(value);
            }
        }
        mean
    }
}
