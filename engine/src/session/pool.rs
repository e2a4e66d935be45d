//! Sessions that share a KV cache and the plans on the device, and take steps together.

use super::Session;
use super::pool_state::PoolState;
use crate::error::{Error, Result};
use crate::kernels::VERIFIED_ROWS;
use crate::model::{CacheShape, Model, most_sequences};
use crate::plan::PAGE;
use crate::shader::Variant;
use crate::threads::{StopCheck, lock};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};

/// A KV cache that several sessions share, with everything else that they need on the device.
///
/// The cache is divided into pages of 256 tokens, and a session holds as many as its tokens take. Sessions that begin
/// with the same tokens share the full pages of these, if the second session [syncs](Session::sync) after the first has
/// computed them. [`Pool::next_token_of_each`] computes the next tokens of several sessions in one step, which takes
/// little longer than a step of one. Sessions can be used from several threads; while one computes, others wait.
///
/// ```
/// # fn main() -> wglm::Result<()> {
/// # use wglm::{CacheShape, Gguf, Gpu, GpuOptions, LoadOptions, Model, Pool};
/// # let gpu = Gpu::open(&GpuOptions::default())?;
/// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
/// // Two sessions of up to 512 tokens each, of up to 768 together.
/// let pool = Pool::new(&model, 2, CacheShape { context: 512, ..model.cache() }, 768)?;
/// let tokenizer = model.tokenizer()?;
/// let (mut owl, mut fox) = (pool.session()?, pool.session()?);
/// owl.feed(&tokenizer.encode("One morning the owl", false)?)?;
/// fox.feed(&tokenizer.encode("In the evening the fox", false)?)?;
/// for _ in 0..4 {
///     for token in pool.next_token_of_each(&mut [&mut owl, &mut fox])? {
///         print!("{} ", token?);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Pool {
    pub(super) state: Arc<Mutex<PoolState>>,
    model: Model,
    cache: CacheShape,
    sessions: usize,
}

impl Pool {
    /// A pool for up to `sessions` sessions at a time, each of up to `cache.context` tokens, and together of up to
    /// `tokens` tokens, in whole pages of 256.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::TooLarge`] or [`Error::ContextTooLarge`] if the cache does not fit,
    /// [`Error::Argument`] for a cache of no tokens, a pool of no sessions, or more of either than can be numbered, and
    /// [`Error::Unsupported`] for a type of cache that cannot hold the model's latents.
    pub fn new(model: &Model, sessions: usize, cache: CacheShape, tokens: usize) -> Result<Self> {
        cache.check(model.config())?;
        if sessions == 0 || tokens == 0 {
            let (argument, found) = if sessions == 0 { ("sessions", "0") } else { ("tokens", "0") };
            return Err(Error::argument(argument, "at least one", found));
        }
        // Rows of a batch name their sequence's list of pages by a number of 32 bits.
        let most = u32::MAX as usize / cache.context.div_ceil(PAGE) - 1;
        if sessions > most {
            let (expected, found) =
                (format!("at most {most} sessions with a context of {} tokens", cache.context), sessions.to_string());
            return Err(Error::argument("sessions", expected, found));
        }
        let state = PoolState::new(model, cache, tokens.div_ceil(PAGE), sessions)?;
        Ok(Self { state: Arc::new(Mutex::new(state)), model: model.clone(), cache, sessions })
    }

    /// Compiles all kernels for steps of several sessions, with and without bias and penalties, and those for masks, so
    /// that nothing is compiled between two tokens. A kernel that the driver refuses is replaced as in a load: then
    /// this returns the model without that kernel, for which the pool has to be created again.
    ///
    /// # Errors
    /// [`Error::WrongKernel`] for a kernel that cannot be replaced; the error of `check_stop`, which is called
    /// repeatedly; any error from the device.
    pub(crate) fn compile(&self, check_stop: &mut StopCheck<'_>) -> Result<Option<Model>> {
        let mut other = None;
        loop {
            let model = other.as_ref().unwrap_or(&self.model);
            let refused = model.pipelines().try_prepare(&self.variants(model)?, &|| {}, check_stop)?;
            if refused.is_empty() {
                return Ok(other);
            }
            other = Some(model.without(&refused)?);
        }
    }

    /// The shaders for all of these, and those of the single-row plan.
    fn variants(&self, model: &Model) -> Result<Vec<Variant>> {
        let most = self.sessions.min(most_sequences(model.config()));
        let most = if most > 1 { most.max(self.state().drafter.most_rows.min(VERIFIED_ROWS)) } else { most };
        model.shaders_of_sequences(self.cache, most)
    }

    /// A new session.
    ///
    /// # Errors
    /// [`Error::Argument`] if the pool already has its maximum number of sessions; any error from the device.
    pub fn session(&self) -> Result<Session> {
        let sequence = self.enter()?.join()?;
        Session::of(self, sequence)
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The cache of each session: its context and the type of its values.
    pub fn cache(&self) -> CacheShape {
        self.cache
    }

    /// The maximum number of sessions at a time.
    pub fn sessions(&self) -> usize {
        self.sessions
    }

    /// How many more tokens all sessions together can hold, in whole pages.
    pub fn free(&self) -> usize {
        self.state().pages.free() * PAGE
    }

    /// How many tokens it could hold in addition to those of these sessions, if all others held none.
    pub(crate) fn tokens_beside<'a>(&self, sessions: impl Iterator<Item = &'a Session>) -> usize {
        let held: HashSet<u32> = sessions.flat_map(|session| session.sequence.pages.iter().copied()).collect();
        self.state().pages.count().saturating_sub(held.len()) * PAGE
    }

    /// Sets the most rows of a step of several sessions with drafts: 0 for no such steps.
    pub(crate) fn set_drafted_rows(&self, rows: usize) {
        self.state().drafter.most_rows = rows;
    }

    /// Fails for a session of another pool.
    pub(super) fn check_own(&self, sessions: &[&mut Session]) -> Result<()> {
        if sessions.iter().all(|session| Arc::ptr_eq(&session.pool.state, &self.state)) {
            return Ok(());
        }
        Err(Error::argument("sessions", "a session of this pool", "one of another"))
    }

    /// The device, for a call that computes. Every such call gets it here.
    ///
    /// # Errors
    /// [`Error::Forked`], checked before waiting for the lock: the thread that held it may not exist in this process.
    pub(super) fn enter(&self) -> Result<MutexGuard<'_, PoolState>> {
        self.model.gpu().check_process()?;
        Ok(self.state())
    }

    /// The same, for a call that only reads state or drops tokens.
    pub(super) fn state(&self) -> MutexGuard<'_, PoolState> {
        lock(&self.state)
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("cache", &self.cache).finish_non_exhaustive()
    }
}
