//! A sequence of tokens and the cache that belongs to it.
//!
//! A session computes a reply's tokens one by one, each in one submission, and a prompt's many at a time; the host is at
//! most a few submissions ahead of the GPU. What the cache holds already is not computed again. The token that follows is
//! sampled on the GPU, which can go on with it before the host knows it: [`Session::next_token`]. How all that is done is
//! told in `session/run.rs`.

mod outputs;
mod pace;
mod parts;
mod profile;
mod prompt_plans;
mod run;
mod sampling;
mod snapshot;
mod submissions;
mod synthetic;

pub use profile::TokenProfile;

use crate::error::{Error, Result};
use crate::gpu::Fetch;
use crate::kernels::Sampling;
use crate::model::{CacheShape, Model, PromptOptions, State, TokenPlan};
use crate::plan::{Executor, Plan};
use parts::Parts;
use prompt_plans::PromptPlans;
use sampling::Adjusting;
use std::ops::ControlFlow;
use submissions::Submissions;

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
/// let said = (0..8).map(|_| session.next_token()).collect::<wglm::Result<Vec<u32>>>()?;
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
    /// How many of the tokens a result has confirmed. If work is lost, the others are removed.
    confirmed: usize,
    /// What the device holds of the last token.
    output: Option<LastOutput>,
    submissions: Submissions,
    /// Reads logits and hidden states.
    fetch: Fetch,
    plans: PromptPlans,
    parts: Parts,
    /// The parameters of sampling that the GPU has.
    sampling: Sampling,
    /// Logit bias and penalties, if there are any.
    adjusting: Option<Adjusting>,
}

/// What the device holds of the last token, beside the sampled token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastOutput {
    /// Its logits. A snapshot holds nothing else.
    Logits,
    /// Its logits and its hidden state.
    Hidden,
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
        let values = model.config().vocab.max(model.config().width);
        Ok(Self {
            model: model.clone(),
            state: State::new(model.config()),
            tokens: Vec::new(),
            confirmed: 0,
            output: None,
            submissions: Submissions::new(gpu)?,
            fetch: Fetch::new(gpu, 4 * values as u64)?,
            plans: PromptPlans::new(model.prompt_options()),
            parts: Parts::new(model.prompt_options()),
            sampling: Sampling::GREEDY,
            adjusting: None,
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
                self.submissions.forget();
            }
            self.tokens.truncate(length);
            self.confirmed = self.confirmed.min(length);
            self.output = None;
        }
    }

    fn last_output(&self) -> Result<LastOutput> {
        let expected = "at least one token fed since the start or the last rewind".to_owned();
        self.output.ok_or(Error::Argument { argument: "session", expected, found: "none".into() })
    }

    /// How prompts are computed.
    pub fn prompt_options(&self) -> PromptOptions {
        self.plans.options
    }

    /// How prompts are computed from here on: as the model was loaded with until this is called.
    pub fn set_prompt_options(&mut self, options: PromptOptions) {
        if options != self.plans.options {
            (self.plans, self.parts) = (PromptPlans::new(options), Parts::new(options));
        }
    }
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
