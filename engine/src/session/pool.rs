//! Sessions side by side: they share a KV cache and the plans on the device, and take steps together.

use super::Session;
use super::device::Device;
use crate::error::{Error, Result};
use crate::kernels::VERIFIED_ROWS;
use crate::model::{CacheShape, Model, most_sequences};
use crate::plan::PAGE;
use crate::shader::Variant;
use crate::threads::{GoOn, lock};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};

/// A KV cache that several sessions share, and what else they need on the device.
///
/// The cache is cut into pages of 256 tokens, and a session holds as many as its tokens take. Sessions that begin with the
/// same tokens hold the full pages of these once, if the second of them [syncs](Session::sync) when the first has computed
/// them. [`Pool::next_tokens`] computes the next tokens of several sessions in one step, which takes little longer than that
/// of one. Sessions can be used from several threads; while one computes, others wait.
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
///     for token in pool.next_tokens(&mut [&mut owl, &mut fox])? {
///         print!("{} ", token?);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Pool {
    pub(super) device: Arc<Mutex<Device>>,
    model: Model,
    cache: CacheShape,
    sessions: usize,
}

impl Pool {
    /// A pool for up to `sessions` sessions at a time, each of up to `cache.context` tokens, and of up to `tokens` tokens
    /// together, counted in whole pages of 256.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::TooLarge`] or [`Error::ContextTooLarge`] if the cache does not fit,
    /// [`Error::Argument`] for a cache of no tokens, a pool of no sessions, or more of either than can be numbered, and
    /// [`Error::Unsupported`] for a type of cache that cannot hold the model's latents.
    pub fn new(model: &Model, sessions: usize, cache: CacheShape, tokens: usize) -> Result<Self> {
        cache.check(model.config())?;
        if sessions == 0 || tokens == 0 {
            let (argument, found) = if sessions == 0 { ("sessions", "0") } else { ("tokens", "0") };
            return Err(Error::Argument { argument, expected: "at least one".to_owned(), found: found.to_owned() });
        }
        // Rows of a batch name the list of their sequence's pages by a number of 32 bits.
        let most = u32::MAX as usize / cache.context.div_ceil(PAGE) - 1;
        if sessions > most {
            let expected = format!("at most {most} sessions with a context of {} tokens", cache.context);
            return Err(Error::Argument { argument: "sessions", expected, found: sessions.to_string() });
        }
        let device = Device::new(model, cache, tokens.div_ceil(PAGE), sessions)?;
        Ok(Self { device: Arc::new(Mutex::new(device)), model: model.clone(), cache, sessions })
    }

    /// Compiles what steps of several of its sessions need, with bias and penalties or without, and what masks need, so that
    /// nothing is compiled between two tokens. A kernel that the driver refuses is replaced as at load: then it returns the
    /// model without that kernel, of which the pool has to be made anew.
    ///
    /// # Errors
    /// [`Error::WrongKernel`] for a kernel that cannot be replaced; that of `go_on`, which is asked again and again
    /// meanwhile; what the device reports.
    pub(crate) fn compile(&self, go_on: &mut GoOn<'_>) -> Result<Option<Model>> {
        let mut other = None;
        loop {
            let model = other.as_ref().unwrap_or(&self.model);
            let refused = model.pipelines().try_prepare(&self.variants(model)?, &|| {}, go_on)?;
            if refused.is_empty() {
                return Ok(other);
            }
            other = Some(model.without(&refused)?);
        }
    }

    /// The shaders of all that, with those of a row alone.
    fn variants(&self, model: &Model) -> Result<Vec<Variant>> {
        let most = self.sessions.min(most_sequences(model.config()));
        let most = if most > 1 { most.max(self.device().drafter.most_rows.min(VERIFIED_ROWS)) } else { most };
        model.shaders_of_sequences(self.cache, most)
    }

    /// A new session.
    ///
    /// # Errors
    /// [`Error::Argument`] if the pool has as many sessions as it is for; what the device reports.
    pub fn session(&self) -> Result<Session> {
        let sequence = self.enter()?.join()?;
        Session::of(self, sequence)
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The cache of each session: its context, and the type of its values.
    pub fn cache(&self) -> CacheShape {
        self.cache
    }

    /// How many sessions it is for.
    pub fn sessions(&self) -> usize {
        self.sessions
    }

    /// How many more tokens all sessions together can hold, in whole pages.
    pub fn free(&self) -> usize {
        self.device().pages.free() * PAGE
    }

    /// How many more tokens it could hold beside those of these sessions, if all others held none.
    pub(crate) fn tokens_beside<'a>(&self, sessions: impl Iterator<Item = &'a Session>) -> usize {
        let held: HashSet<u32> = sessions.flat_map(|session| session.sequence.pages.iter().copied()).collect();
        self.device().pages.count().saturating_sub(held.len()) * PAGE
    }

    /// The most rows of a step of several sessions in which drafts are verified: 0 for no such steps.
    pub(crate) fn set_drafted_rows(&self, rows: usize) {
        self.device().drafter.most_rows = rows;
    }

    /// The device, for a call that computes. Every such call comes through here.
    ///
    /// # Errors
    /// [`Error::Forked`], before the lock is waited for: the thread that held it may not exist in this process.
    pub(super) fn enter(&self) -> Result<MutexGuard<'_, Device>> {
        self.model.gpu().check_process()?;
        Ok(self.device())
    }

    /// The same, for a call that only looks, or forgets tokens.
    pub(super) fn device(&self) -> MutexGuard<'_, Device> {
        lock(&self.device)
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("cache", &self.cache).finish_non_exhaustive()
    }
}
