//! A sequence of tokens and the cache that belongs to it.
//!
//! A session feeds tokens through the model's plan, each one submission, and keeps the host at most a few
//! submissions ahead of the GPU. What the cache holds already is not computed again.

mod pretend;

use crate::error::{Error, Result};
use crate::gpu::{Copy, Readback, Submission};
use crate::kernels::NO_TOKEN;
use crate::model::{CacheShape, Model, TokenPlan};
use crate::plan::{Executor, Plan};
use std::collections::VecDeque;
use std::ops::ControlFlow;

/// Tokens submitted ahead of the GPU: enough to keep it busy, few enough that a cancel is felt at once.
const AHEAD: usize = 4;

/// What a call to [`Session::sync`] found in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reuse {
    /// Tokens whose cache was kept.
    pub cached: usize,
    /// Tokens computed.
    pub new: usize,
}

/// How long a token took on the GPU, in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenProfile {
    /// Each step of the plan, timed one by one. The timestamps themselves take time: the sum is more than
    /// `pass`.
    pub steps: Vec<f64>,
    /// All of it in one pass, as it runs otherwise.
    pub pass: f64,
}

/// A conversation's place in a model: its tokens, its cache, and the logits of its last token.
pub struct Session {
    model: Model,
    executor: Executor,
    planned: TokenPlan,
    tokens: Vec<u32>,
    logits: Readback,
    token: Readback,
    /// What the GPU may not have finished yet, oldest first.
    running: VecDeque<Submission>,
    /// The submission that left the last token's output on the device, if there is one.
    output: Option<Submission>,
}

impl Session {
    /// A session with the model's usual context.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] or [`Error::TooLarge`] if the cache does not fit.
    pub fn new(model: &Model) -> Result<Self> {
        Self::with_cache(model, model.cache())
    }

    /// A session with a cache as given.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn with_cache(model: &Model, cache: CacheShape) -> Result<Self> {
        let planned = model.plan(CacheShape { context: cache.context.max(1), ..cache })?;
        let executor = Executor::new(model.pipelines(), &planned.plan, model.weights())?;
        let gpu = model.gpu();
        let logits = gpu.readback("logits", planned.logits.bytes())?;
        let token = gpu.readback("token", 4)?;
        Ok(Self {
            model: model.clone(),
            executor,
            planned,
            tokens: Vec::new(),
            logits,
            token,
            running: VecDeque::new(),
            output: None,
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
    /// session holds the tokens fed before it.
    pub fn feed(&mut self, tokens: &[u32]) -> Result<()> {
        self.feed_with(tokens, &mut |_| ControlFlow::Continue(()))
    }

    /// As [`Session::feed`], telling `progress` how many of the tokens are submitted and stopping if it says
    /// so.
    ///
    /// # Errors
    /// As [`Session::feed`], and [`Error::Cancelled`]; what was fed until then stays.
    pub fn feed_with(&mut self, tokens: &[u32], progress: &mut dyn FnMut(usize) -> ControlFlow<()>) -> Result<()> {
        self.check(self.tokens.len(), tokens)?;
        let Some((&last, before)) = tokens.split_last() else { return Ok(()) };
        self.output = None;
        for (&token, done) in before.iter().zip(1..) {
            self.step(token, Output::Unwanted)?;
            if progress(done).is_break() {
                return Err(Error::Cancelled);
            }
        }
        self.step(last, Output::Wanted)?;
        self.output = self.running.back().cloned();
        if progress(tokens.len()).is_break() { Err(Error::Cancelled) } else { Ok(()) }
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

    /// Submits one token, and waits if the GPU is too far behind.
    fn step(&mut self, token: u32, output: Output) -> Result<()> {
        self.write_state(token)?;
        let plan = &self.planned.plan;
        let submission = match (output, TokenPlan::local(&self.planned.token)) {
            (Output::Wanted, Some(local)) => {
                let copy = Copy { from: self.executor.local(local), offset: 0, bytes: 4, to: &self.token };
                self.executor.submit(0..plan.steps.len(), &[copy])?
            }
            _ => self.executor.submit(0..plan.head, &[])?,
        };
        self.tokens.push(token);
        self.running.push_back(submission);
        if self.running.len() > AHEAD
            && let Some(oldest) = self.running.pop_front()
        {
            self.executor.gpu().wait(&oldest)?;
        }
        Ok(())
    }

    /// Feeds one token and returns how long it took on the GPU.
    ///
    /// # Errors
    /// As [`Session::feed`]; [`Error::Unsupported`] on a device without timestamps.
    pub fn profile(&mut self, token: u32) -> Result<TokenProfile> {
        self.check(self.tokens.len(), &[token])?;
        let all = 0..self.planned.plan.steps.len();
        self.output = None;
        self.write_state(token)?;
        let steps = self.executor.time(all.clone())?;
        self.write_state(token)?; // the same token again: a step writes what it wrote before
        let pass = self.executor.time_pass(all)?;
        self.tokens.push(token);
        Ok(TokenProfile { steps, pass })
    }

    /// The plan that the session executes.
    pub fn plan(&self) -> &Plan {
        &self.planned.plan
    }

    fn write_state(&self, token: u32) -> Result<()> {
        let position = self.tokens.len();
        let mut state = Vec::with_capacity(8 + 4 * self.model.config().rotary);
        state.extend_from_slice(bytemuck::bytes_of(&[token, position as u32]));
        for turn in self.model.config().turns(position) {
            state.extend_from_slice(bytemuck::bytes_of(&turn));
        }
        self.executor.gpu().write(self.executor.local(self.planned.state), 0, &state)
    }

    /// Makes the session hold exactly `tokens`, keeping the cache of the longest common prefix. The logits
    /// of the last token are there afterwards.
    ///
    /// # Errors
    /// As [`Session::feed_with`].
    pub fn sync(&mut self, tokens: &[u32], progress: &mut dyn FnMut(usize) -> ControlFlow<()>) -> Result<Reuse> {
        let cached = self.reusable(tokens);
        self.rewind(cached);
        self.feed_with(&tokens[cached..], progress)?;
        Ok(Reuse { cached, new: tokens.len() - cached })
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
            self.tokens.truncate(length);
            self.output = None;
        }
    }

    /// The logits {vocab} of the last token fed.
    ///
    /// # Errors
    /// [`Error::Argument`] if nothing was fed since the start or the last rewind; what the device reports.
    pub fn logits(&mut self) -> Result<Vec<f32>> {
        self.output()?;
        let bytes = self.planned.logits.bytes();
        let Some(local) = TokenPlan::local(&self.planned.logits) else { return Ok(Vec::new()) };
        let copy = Copy { from: self.executor.local(local), offset: 0, bytes, to: &self.logits };
        let done = self.executor.submit(0..0, &[copy])?;
        self.running.clear(); // older than this one
        let data = self.executor.gpu().read(&self.logits, bytes, &done)?;
        Ok(bytemuck::pod_collect_to_vec(&data))
    }

    /// The most likely token after the last one fed.
    ///
    /// # Errors
    /// As [`Session::logits`]; [`Error::NotANumber`] if no logit is a number.
    pub fn most_likely(&mut self) -> Result<u32> {
        let data = self.executor.gpu().read(&self.token, 4, self.output()?)?;
        match bytemuck::pod_read_unaligned::<u32>(&data) {
            NO_TOKEN => Err(Error::NotANumber),
            token => Ok(token),
        }
    }

    fn output(&self) -> Result<&Submission> {
        let expected = "at least one token fed since the start or the last rewind".to_owned();
        self.output.as_ref().ok_or(Error::Argument { argument: "session", expected, found: "none".into() })
    }
}

/// Whether a token's output is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Output {
    Wanted,
    Unwanted,
}

impl Drop for Session {
    /// Work on its way holds on to the cache: a session made next should find the memory free.
    fn drop(&mut self) {
        let _ = self.wait();
    }
}
