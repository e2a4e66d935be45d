//! A sequence of tokens and the cache that belongs to it.
//!
//! A session feeds a reply's tokens through the model's plan, each one submission, and a prompt's in chunks; the host
//! is at most a few submissions ahead of the GPU. What the cache holds already is not computed again. The token that
//! follows is chosen on the GPU, which can go on with it before the host knows it: [`Session::feed_chosen`].

mod adjusting;
mod chunks;
mod hidden;
mod pace;
mod parts;
mod profile;
mod prompt;
mod sampled;
mod sampling;
mod snapshot;
mod synthetic;

pub use profile::TokenProfile;

use crate::error::{Error, Result};
use crate::gpu::{Readback, ReadbackCopy, Receipts, Submission};
use crate::kernels::Sampling;
use crate::model::{CacheShape, Model, State, TokenPlan};
use crate::plan::{Executor, Plan};
use adjusting::Adjusting;
use chunks::Chunks;
use parts::Parts;
use sampled::{LastOutput, SampledTokens};
use std::collections::VecDeque;
use std::ops::ControlFlow;

/// Tokens submitted ahead of the GPU: enough to keep it busy, few enough that a cancel is felt at once.
const AHEAD: usize = 4;

/// What a call to [`Session::sync`] found in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Reuse {
    /// Tokens whose cache was kept.
    pub cached: usize,
    /// Tokens computed.
    pub new: usize,
}

/// A conversation's place in a model: its tokens, its cache, and the logits of its last token.
///
/// ```
/// # fn main() -> wglm::Result<()> {
/// # #[cfg(feature = "demo-model")] {
/// # use wglm::{Gguf, Gpu, GpuOptions, LoadOptions, Model};
/// # let gpu = Gpu::open(&GpuOptions::default())?;
/// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
/// use std::ops::ControlFlow;
/// use wglm::Session;
///
/// let tokenizer = model.tokenizer()?;
/// let mut session = Session::new(&model)?;
/// session.feed(&tokenizer.encode("One morning the owl", false)?)?;
/// let said = (0..8).map(|_| session.feed_chosen()).collect::<wglm::Result<Vec<u32>>>()?;
/// println!("{}", tokenizer.decode(&said, false)?);
///
/// // What both have in common stays in the cache.
/// let other = tokenizer.encode("One morning the fox", false)?;
/// let reuse = session.sync(&other, &mut |_| ControlFlow::Continue(()))?;
/// assert!(reuse.cached >= 1 && reuse.cached + reuse.new == other.len());
/// assert_eq!(session.logits()?.len(), model.config().vocab);
/// # }
/// # Ok(())
/// # }
/// ```
pub struct Session {
    model: Model,
    executor: Executor,
    planned: TokenPlan,
    state: State,
    tokens: Vec<u32>,
    logits: Readback,
    sampled: SampledTokens,
    /// How many of the tokens a result that came vouches for.
    confirmed: usize,
    /// What the newest state asks its result to carry: see [`choices`].
    ticket: u32,
    chunks: Chunks,
    parts: Parts,
    receipts: Receipts,
    /// As the GPU has it.
    sampling: Sampling,
    /// Logit bias and penalties, if there are any.
    adjusting: Option<Adjusting>,
    /// What the GPU may not have finished yet, oldest first.
    running: VecDeque<Submission>,
    /// The last token's output, if it is on the device.
    output: Option<LastOutput>,
    /// Whether its hidden state is there as well: a snapshot holds the logits alone.
    has_hidden: bool,
}

impl Session {
    /// A session with the model's usual context.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] or [`Error::ContextTooLarge`] if the cache does not fit.
    pub fn new(model: &Model) -> Result<Self> {
        Self::with_cache(model, model.cache())
    }

    /// A session with a cache as given.
    ///
    /// # Errors
    /// As [`Session::new`], and [`Error::Argument`] for a cache of no tokens.
    pub fn with_cache(model: &Model, cache: CacheShape) -> Result<Self> {
        let planned = model.plan(cache)?;
        planned.check(model.gpu().capabilities())?;
        let executor = Executor::new(model.pipelines(), &planned.plan, model.weights())?;
        let gpu = model.gpu();
        let bytes = 4 * model.config().vocab as u64;
        Ok(Self {
            model: model.clone(),
            state: State::new(model.config()),
            tokens: Vec::new(),
            confirmed: 0,
            logits: gpu.readback("logits", bytes)?,
            sampled: SampledTokens::new(gpu)?,
            ticket: 0,
            chunks: Chunks::new(model.prompt_options()),
            parts: Parts::new(model.prompt_options()),
            receipts: Receipts::new(gpu)?,
            sampling: Sampling::GREEDY,
            adjusting: None,
            running: VecDeque::with_capacity(AHEAD + 1),
            output: None,
            has_hidden: false,
            executor,
            planned,
        })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The tokens fed so far.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Tokens the cache can hold.
    pub fn context(&self) -> usize {
        self.planned.cache.context
    }

    /// Feeds tokens after those already there.
    ///
    /// # Errors
    /// [`Error::TokenOutOfRange`], [`Error::ContextFull`], or what the device reports. After an error the
    /// session holds the tokens fed before it, after [`Error::NoResult`] those that an earlier result vouches for.
    pub fn feed(&mut self, tokens: &[u32]) -> Result<()> {
        self.feed_with(tokens, &mut |_| ControlFlow::Continue(()))
    }

    /// As [`Session::feed`], telling `progress` after each submission, and again and again while kernels compile that
    /// nothing needed before, how many of the tokens the session holds, and stopping if it says so.
    ///
    /// # Errors
    /// As [`Session::feed`], and [`Error::Cancelled`]; what the session holds by then stays.
    pub fn feed_with(&mut self, tokens: &[u32], progress: &mut dyn FnMut(usize) -> ControlFlow<()>) -> Result<()> {
        self.check(self.tokens.len(), tokens)?;
        if tokens.is_empty() {
            return Ok(());
        }
        self.output = None;
        let fed = match self.chunks.options.chunks(tokens.len()) {
            true => self.feed_chunks(tokens, progress),
            false => self.feed_each(tokens, 0, progress),
        };
        self.or_rewound(fed)
    }

    /// Feeds tokens one by one, the last to the choice of the next one. `before` of those that `progress` is told of are
    /// there.
    fn feed_each(
        &mut self,
        tokens: &[u32],
        before: usize,
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<()> {
        let Some((&last, first)) = tokens.split_last() else { return Ok(()) };
        for (&token, done) in first.iter().zip(before + 1..) {
            self.step(token)?;
            going_on(progress(done))?;
        }
        self.feed_one(last)?;
        going_on(progress(before + tokens.len()))
    }

    /// Feeds a token, to the choice of the next one.
    fn feed_one(&mut self, token: u32) -> Result<()> {
        self.write(Some(token))?;
        let output = self.submit_from(0)?;
        self.tokens.push(token);
        self.output = Some(output);
        Ok(())
    }

    /// Waits until everything fed has been computed.
    ///
    /// # Errors
    /// What the device reports.
    pub fn wait(&mut self) -> Result<()> {
        let newest = self.running.pop_back();
        self.running.clear(); // older than that
        newest.map_or(Ok(()), |submission| self.executor.gpu().wait(&submission))
    }

    /// Whether `tokens` can follow the first `kept` tokens of the session.
    ///
    /// # Errors
    /// [`Error::TokenOutOfRange`], [`Error::ContextFull`].
    pub fn check(&self, kept: usize, tokens: &[u32]) -> Result<()> {
        let vocab = self.model.config().vocab;
        if let Some(&token) = tokens.iter().find(|t| **t as usize >= vocab) {
            return Err(Error::TokenOutOfRange { token, vocab });
        }
        let needed = kept + tokens.len();
        if needed > self.context() {
            return Err(Error::ContextFull { needed, context: self.context() });
        }
        Ok(())
    }

    /// Submits one token whose output is nobody's concern.
    fn step(&mut self, token: u32) -> Result<()> {
        self.write(Some(token))?;
        let receipt = self.receipts.next(self.executor.gpu(), self.running.back())?;
        let submission = self.executor.submit(0..self.planned.plan.head, &[receipt])?;
        self.tokens.push(token);
        self.runs(submission)
    }

    /// Notes a submission, and waits if the GPU is too far behind.
    fn runs(&mut self, submission: Submission) -> Result<()> {
        self.running.push_back(submission);
        let oldest = if self.running.len() > AHEAD { self.running.pop_front() } else { None };
        oldest.map_or(Ok(()), |oldest| self.executor.gpu().wait(&oldest))
    }

    /// Writes what belongs to the next position, and the token unless it is the one that was chosen.
    fn write(&mut self, token: Option<u32>) -> Result<()> {
        self.write_state(self.tokens.len())?;
        let (gpu, local) = (self.executor.gpu(), self.executor.local(Plan::TOKEN));
        token.map_or(Ok(()), |token| gpu.write(local, 0, &token.to_le_bytes()))
    }

    /// Writes what belongs to a position, and a new ticket.
    fn write_state(&mut self, position: usize) -> Result<()> {
        self.ticket = self.ticket.wrapping_add(1);
        let state = self.state.at(position, self.ticket);
        self.executor.gpu().write(self.executor.local(Plan::STATE), 0, state)
    }

    /// The plan that the session executes.
    pub fn plan(&self) -> &Plan {
        &self.planned.plan
    }

    /// Makes the session hold exactly `tokens`, keeping the cache of the longest common prefix. The logits
    /// of the last token are there afterwards.
    ///
    /// # Errors
    /// As [`Session::feed_with`]; tokens that are too many or unknown leave the session as it was.
    pub fn sync(&mut self, tokens: &[u32], progress: &mut dyn FnMut(usize) -> ControlFlow<()>) -> Result<Reuse> {
        let cached = self.keep_common(tokens)?;
        self.feed_with(&tokens[cached..], progress)?;
        Ok(Reuse { cached, new: tokens.len() - cached })
    }

    /// Forgets all but what `tokens` begin with, unless they would not fit: then it keeps everything. Returns how many
    /// of them need not be computed again.
    pub(crate) fn keep_common(&mut self, tokens: &[u32]) -> Result<usize> {
        let cached = self.reusable(tokens);
        self.check(cached, &tokens[cached..])?;
        self.rewind(cached);
        Ok(cached)
    }

    /// How many of `tokens` the session has in its cache and need not compute again.
    ///
    /// The logits of a token are those of its own pass: unless they are still there, the last token has to
    /// run again.
    pub fn reusable(&self, tokens: &[u32]) -> usize {
        let common = self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let there = common == tokens.len() && common == self.tokens.len() && self.output.is_some();
        if there { common } else { common.min(tokens.len().saturating_sub(1)) }
    }

    /// Forgets all tokens but the first `length`.
    pub fn rewind(&mut self, length: usize) {
        if length < self.tokens.len() {
            if length <= self.confirmed {
                self.receipts.forget();
            }
            self.tokens.truncate(length);
            self.confirmed = self.confirmed.min(length);
            self.output = None;
        }
    }

    /// The logits {vocab} of the last token fed, as the model left them: without bias and penalties.
    ///
    /// # Errors
    /// [`Error::Argument`] if nothing was fed since the start or the last rewind; [`Error::NoResult`] if they never
    /// came: then the tokens that were fed since the last result that did are not in the session any more; what the
    /// device reports.
    pub fn logits(&mut self) -> Result<Vec<f32>> {
        let ticket = self.output()?.ticket();
        let bytes = 4 * self.model.config().vocab as u64;
        let (executor, token) = (&self.executor, self.executor.local(Plan::TOKEN));
        let logits =
            ReadbackCopy { from: executor.local(self.planned.logits), offset: 0, bytes, to: &self.logits, at: 0 };
        // The choice comes along once more: its ticket vouches for both.
        let copied = self.sampled.submit(ticket, token, |choice| executor.submit(0..0, &[logits, choice]))?;
        self.running.clear(); // older than this one
        let data = executor.gpu().read(&self.logits, bytes, copied.submission())?;
        self.read(&copied)?;
        self.output = Some(copied);
        Ok(bytemuck::pod_collect_to_vec(&data))
    }

    fn output(&self) -> Result<&LastOutput> {
        let expected = "at least one token fed since the start or the last rewind".to_owned();
        self.output.as_ref().ok_or(Error::Argument { argument: "session", expected, found: "none".into() })
    }
}

/// An error where the caller wants no more.
fn going_on(flow: ControlFlow<()>) -> Result<()> {
    if flow.is_break() { Err(Error::Cancelled) } else { Ok(()) }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("tokens", &self.tokens.len())
            .field("context", &self.context())
            .finish_non_exhaustive()
    }
}

impl Drop for Session {
    /// Work on its way holds on to the cache: a session made next should find the memory free.
    fn drop(&mut self) {
        let _ = self.wait();
    }
}
