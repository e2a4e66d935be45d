//! A sequence of tokens and the cache that belongs to it.
//!
//! A session computes a reply's tokens one by one, each in a submission of its own, and a prompt's tokens many at a
//! time. Tokens in the cache are not computed again. The next token is sampled on the GPU, which can continue with it
//! before the host knows it: [`Session::next_token`]. `session/step.rs` explains how.
//!
//! `generate` drives sessions, and `scheduler` drives generations.

mod block;
mod guesses;
mod next;
mod outputs;
mod owners;
mod pacer;
mod pages;
mod paging;
mod parts;
mod plans;
mod pool;
mod pool_state;
mod profile;
mod prompt;
mod sampling;
mod sequence;
mod snapshot;
mod step;
mod submissions;
mod synthetic;
mod together;
mod token_counts;

#[cfg(feature = "constrain")]
pub(crate) use guesses::{GuessedRows, GuessedStep};
pub(crate) use outputs::HiddenMean;
pub use pool::Pool;
pub use profile::TokenProfile;
pub(crate) use synthetic::fill_with_noise;
pub(crate) use together::FinalPart;

use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::model::{BatchPlan, CacheShape, Model, PromptOptions};
use crate::plan::Plan;
use crate::threads::with_nested_stop_signal;
use guesses::Drafter;
use parts::Parts;
use pool_state::PoolState;
use sequence::Sequence;
use std::sync::{Arc, MutexGuard};

/// What a call to [`Session::sync`] found in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Reuse {
    /// Tokens whose cache was kept.
    pub cached: usize,
    /// Tokens computed.
    pub new: usize,
}

/// A conversation's state in a model: its tokens, its cache, and the logits of its last token.
///
/// ```
/// # fn main() -> wglm::Result<()> {
/// # use wglm::{Gguf, Gpu, GpuOptions, LoadOptions, Model};
/// # let gpu = Gpu::open(&GpuOptions::default())?;
/// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
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
/// let reuse = session.sync(&other)?;
/// assert!(reuse.cached >= 1 && reuse.cached + reuse.new == other.len());
/// assert_eq!(session.logits()?.len(), model.config().vocab);
/// # Ok(())
/// # }
/// ```
pub struct Session {
    pool: Pool,
    /// The plan of a row alone.
    planned: Arc<BatchPlan>,
    sequence: Sequence,
    options: PromptOptions,
    parts: Parts,
    drafter: Drafter,
}

impl Session {
    /// A session with the model's usual context.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] or [`Error::ContextTooLarge`] if the cache does not fit.
    pub fn new(model: &Model) -> Result<Self> {
        Self::with_cache(model, model.cache())
    }

    /// A session with this cache. Sessions that are used side by side can share one instead: see [`Pool`].
    ///
    /// # Errors
    /// The errors of [`Session::new`], [`Error::Argument`] for a cache of no tokens, and [`Error::Unsupported`] for a
    /// type of cache that cannot hold the model's latents.
    pub fn with_cache(model: &Model, cache: CacheShape) -> Result<Self> {
        Pool::new(model, 1, cache, cache.context)?.session()
    }

    /// A session of a pool, with an empty sequence.
    fn of(pool: &Pool, sequence: Sequence) -> Result<Self> {
        let (options, planned) = (pool.model().prompt_options(), pool.state().plans.alone.planned.clone());
        let (parts, drafter) = (Parts::new(options), Drafter::new(pool.model().gpu().report().is_software()));
        Ok(Self { pool: pool.clone(), planned, sequence, options, parts, drafter })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        self.pool.model()
    }

    /// The tokens fed so far.
    pub fn tokens(&self) -> &[u32] {
        &self.sequence.tokens
    }

    /// How many tokens the cache can hold.
    pub fn context(&self) -> usize {
        self.pool.cache().context
    }

    /// Whether `tokens` can follow the first `kept` tokens of the session.
    ///
    /// # Errors
    /// [`Error::TokenOutOfRange`], [`Error::ContextFull`].
    pub fn check(&self, kept: usize, tokens: &[u32]) -> Result<()> {
        let vocab = self.model().config().vocab;
        if let Some(&token) = tokens.iter().find(|t| **t as usize >= vocab) {
            return Err(Error::TokenOutOfRange { token, vocab });
        }
        let needed = kept.saturating_add(tokens.len());
        if needed > self.context() {
            return Err(Error::ContextFull { needed, context: self.context() });
        }
        Ok(())
    }

    /// The plan that the session executes.
    #[doc(hidden)]
    pub fn plan(&self) -> &Plan {
        &self.planned.plan
    }

    /// Makes the session hold exactly `tokens`, and keeps the cache of the longest common prefix. The logits of the
    /// last token are available afterwards.
    ///
    /// # Errors
    /// The errors of [`Session::feed`]; if there are too many tokens, or unknown ones, the session is unchanged.
    pub fn sync(&mut self, tokens: &[u32]) -> Result<Reuse> {
        self.sync_with(tokens, &Cancel::default(), &mut |_| {})
    }

    /// Like [`Session::sync`], with the `cancel` and the `progress` of [`Session::feed_with`].
    ///
    /// # Errors
    /// The errors of [`Session::feed_with`]; if there are too many tokens, or unknown ones, the session is unchanged.
    pub fn sync_with(&mut self, tokens: &[u32], cancel: &Cancel, progress: &mut dyn FnMut(usize)) -> Result<Reuse> {
        let cached = self.keep_common(tokens)?;
        self.feed_with(&tokens[cached..], cancel, progress)?;
        Ok(Reuse { cached, new: tokens.len() - cached })
    }

    /// Drops all tokens but those that `tokens` begin with, unless they would not fit: then it keeps everything.
    /// Returns how many of them need not be computed again, because this session or another one of the pool has
    /// computed them.
    pub(crate) fn keep_common(&mut self, tokens: &[u32]) -> Result<usize> {
        // Tokens that may have been lost are computed again.
        let _ = self.pool.enter()?.settle(&mut self.sequence);
        let cached = self.reusable(tokens);
        self.check(cached, &tokens[cached..])?;
        let state = &mut *self.pool.enter()?;
        state.rewind(&mut self.sequence, cached);
        state.share(&mut self.sequence, tokens)?;
        Ok(self.sequence.tokens.len())
    }

    /// The tenant whose tokens the session holds.
    pub(crate) fn tenant(&self) -> u64 {
        self.sequence.tenant
    }

    /// Gives the session to a tenant, without the tokens of another one.
    pub(crate) fn set_tenant(&mut self, tenant: u64) {
        if tenant != self.sequence.tenant {
            self.rewind(0);
            self.sequence.tenant = tenant;
        }
    }

    /// How many of `tokens` need not be computed again, because the session has them in its cache.
    ///
    /// The logits of a token come from its own pass. Unless they are still available, the last token has to be computed
    /// again.
    pub fn reusable(&self, tokens: &[u32]) -> usize {
        let held = self.tokens();
        let common = held.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let there = common == tokens.len() && common == held.len() && self.sequence.has_output();
        if there { common } else { common.min(tokens.len().saturating_sub(1)) }
    }

    /// Drops all tokens but the first `length`. In a forked process, where no other call works, it does nothing.
    pub fn rewind(&mut self, length: usize) {
        if let Ok(mut state) = self.pool.enter() {
            state.rewind(&mut self.sequence, length);
        }
    }

    /// Releases the pages that a prompt has reserved for tokens that were not computed.
    pub(crate) fn release_reserved(&mut self) {
        self.rewind(self.tokens().len());
    }

    /// Checks that the session can take part in a step of its pool, and reserves the pages for it.
    ///
    /// # Errors
    /// The errors of [`Pool::next_token_of_each`] about this session.
    pub(crate) fn reserve_next(&mut self) -> Result<()> {
        self.check(self.tokens().len() + 1, &[])?;
        let (mut state, sequence) = self.enter()?;
        state.check_output(sequence)?;
        state.reach(sequence, 1)
    }

    /// The state of the pool, once this session may use it, and the sequence.
    ///
    /// # Errors
    /// [`Error::NoResult`] if work of this session was lost while others used the device.
    fn enter(&mut self) -> Result<(MutexGuard<'_, PoolState>, &mut Sequence)> {
        let mut state = self.pool.enter()?;
        state.settle(&mut self.sequence)?;
        Ok((state, &mut self.sequence))
    }

    /// Waits until everything fed has been computed.
    ///
    /// # Errors
    /// Any error from the device.
    pub fn wait(&mut self) -> Result<()> {
        self.pool.enter()?.submissions.wait(self.pool.model().gpu(), 0)
    }

    /// Replaces the session by an empty one of another model, which has to be loaded from the same file, usually on a
    /// new device after [`Error::DeviceLost`]. The cache has the same size and type, and prompts are computed in the
    /// same way; a session of a [`Pool`] gets a cache of its own. The tokens have to be fed again: until this call,
    /// [`Session::tokens`] has them.
    ///
    /// # Errors
    /// [`Error::Argument`] if the model is from another file; the errors of [`Session::with_cache`]. After an error the
    /// session is unchanged.
    pub fn move_to(&mut self, model: &Model) -> Result<()> {
        let (own, other) = (self.model().fingerprint(), model.fingerprint());
        if own != other {
            let named = |fingerprint: u64| format!("model {fingerprint:016x}");
            return Err(Error::argument("model", named(own), named(other)));
        }
        let mut moved = Self::with_cache(model, self.pool.cache())?;
        moved.set_prompt_options(self.options);
        *self = moved;
        Ok(())
    }

    /// How prompts are computed.
    pub fn prompt_options(&self) -> PromptOptions {
        self.options
    }

    /// Sets how prompts are computed from now on. Until this is called, it is as the model was loaded.
    pub fn set_prompt_options(&mut self, options: PromptOptions) {
        let options = options.on(self.model().gpu().report());
        if options != self.options {
            (self.options, self.parts) = (options, Parts::new(options));
        }
    }
}

/// Does work that should stop once `cancel` is cancelled, even while it waits for the end of a
/// [pause](crate::gpu::Gpu::pause).
fn heeding<T>(cancel: &Cancel, work: impl FnOnce() -> T) -> T {
    let cancel = cancel.clone();
    with_nested_stop_signal(move || cancel.is_cancelled(), work)
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("tokens", &self.tokens().len())
            .field("context", &self.context())
            .finish_non_exhaustive()
    }
}

impl Drop for Session {
    /// Waits, because running work keeps the cache: the next session should find its memory free.
    fn drop(&mut self) {
        let _ = self.wait();
        // In a process that was forked, another thread of the parent may hold the lock forever.
        if let Ok(mut state) = self.pool.enter() {
            state.leave(&mut self.sequence);
        }
    }
}
