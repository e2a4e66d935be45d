//! Sessions side by side: they share a KV cache and the plans on the device, and take steps together.

use super::pages::Pages;
use super::plans::Plans;
use super::run::known;
use super::submissions::{Sampled, Submissions};
use super::{LastOutput, Session};
use crate::error::{Error, Result};
use crate::gpu::{BufferCopy, BufferRange, BufferUse, Fetch};
use crate::kernels::Sampling;
use crate::model::{BatchShape, BatchWriter, CacheShape, Model, Outputs, most_sequences};
use crate::plan::{PAGE, RowHeader};
use crate::shader::Variant;
use crate::threads::GoOn;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A KV cache that several sessions share, and what else they need on the device.
///
/// The cache is cut into pages of 256 tokens, and a session holds as many as its tokens take. Sessions that begin with the
/// same tokens hold the full pages of these once, if the second of them [syncs](Session::sync) when the first has computed
/// them. [`Pool::next_tokens`] computes the next tokens of several sessions in one step, which takes little longer than that
/// of one. Sessions can be used from several threads; while one computes, others wait.
///
/// ```
/// # fn main() -> wglm::Result<()> {
/// # #[cfg(feature = "demo-model")] {
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
/// # }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Pool {
    runner: Arc<Mutex<Runner>>,
    model: Model,
    cache: CacheShape,
    sessions: usize,
}

/// What the sessions of a pool share.
pub(super) struct Runner {
    pub pages: Pages,
    pub plans: Plans,
    pub submissions: Submissions,
    /// Reads logits and hidden states.
    pub fetch: Fetch,
    /// Which sequences belong to a session.
    sequences: Vec<bool>,
    /// The sequence whose last token the plan of a row alone has computed last, with what it has of it on the device.
    pub holder: Option<usize>,
    /// The sequence whose list of pages the plan of a row alone has, if it is up to date. Its kernels look for no other.
    pub listed: Option<usize>,
    /// The sequence whose hidden states and drafts are on the device, for a multi-token-prediction block.
    pub drafting: Option<usize>,
    /// How often plans of several rows have run. They share their activations, so each run takes the place of what the
    /// one before it left.
    pub shared_runs: u64,
    /// How often work was lost.
    pub losses: u64,
}

/// Where the device has what a step of several rows left of one of them, until a plan of several rows runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowOutput {
    /// The plan.
    pub shape: BatchShape,
    /// The row in its batch.
    pub row: usize,
    /// Which of the runs it was: [`Runner::shared_runs`] after it.
    pub run: u64,
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
        let (gpu, config, pages) = (model.gpu(), model.config(), tokens.div_ceil(PAGE));
        let plans = Plans::new(model, cache, pages, sessions)?;
        let runner = Runner {
            pages: Pages::new(pages),
            submissions: Submissions::new(gpu, BatchWriter::new(config), plans.shared.sampled.clone())?,
            plans,
            fetch: Fetch::new(gpu, 4 * config.vocab.max(config.width) as u64)?,
            sequences: vec![false; sessions],
            holder: None,
            listed: None,
            drafting: None,
            shared_runs: 0,
            losses: 0,
        };
        Ok(Self { runner: Arc::new(Mutex::new(runner)), model: model.clone(), cache, sessions })
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
        let alone = model.plan(self.cache, BatchShape::ALONE)?;
        let mut variants = model.plan_sampling(&alone, alone.head()?, 1, true)?.plan.variants;
        variants.extend(alone.plan.variants.iter().cloned());
        let mut room = 2;
        while room < 2 * most {
            let mut before = 0;
            // The shapes for all depths, the last of which is that of the whole context.
            while before <= self.cache.context {
                let shape = BatchShape::of(room, Outputs::Sequences, before, self.cache.context);
                let planned = model.plan(self.cache, shape)?;
                variants.extend(planned.plan.variants.iter().cloned());
                variants.extend(model.plan_sampling(&planned, planned.head()?, 1, false)?.plan.variants);
                before = shape.depth + 1;
            }
            room *= 2;
        }
        Ok(variants)
    }

    /// A new session.
    ///
    /// # Errors
    /// [`Error::Argument`] if the pool has as many sessions as it is for; what the device reports.
    pub fn session(&self) -> Result<Session> {
        let mut runner = self.enter()?;
        let Some(sequence) = runner.sequences.iter().position(|taken| !taken) else {
            let most = runner.sequences.len();
            let (expected, found) = (format!("at most {most} sessions at a time"), format!("{}", most + 1));
            return Err(Error::Argument { argument: "sessions", expected, found });
        };
        let session = Session::of(self, sequence, &runner)?;
        runner.sequences[sequence] = true;
        Ok(session)
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
        self.runner().pages.free() * PAGE
    }

    /// How many tokens there would be room for beside these sessions of it, if all others held none.
    pub(crate) fn room_beside<'a>(&self, sessions: impl Iterator<Item = &'a Session>) -> usize {
        let held: HashSet<u32> = sessions.flat_map(|session| session.pages.iter().copied()).collect();
        self.runner().pages.count().saturating_sub(held.len()) * PAGE
    }

    /// Feeds each session the token that was sampled after its last one, all in one step, and returns these tokens in order.
    /// As with [`Session::next_token`], which does the same for one, they are submitted first and read afterwards.
    ///
    /// A session gets the tokens that it would get alone. Logits may be off by rounding, because rows of a batch are summed
    /// in another order than a row alone.
    ///
    /// # Errors
    /// [`Error::Argument`] for a session of another pool or one that nothing was fed to since the last rewind,
    /// [`Error::ContextFull`] and [`Error::PoolFull`], after which all are as they were; [`Error::NoResult`] and what the
    /// device reports. A session of whose logits none is a number gets [`Error::NotANumber`] for a token. More than 32
    /// sessions take several steps: if one after the first fails, the sessions of this step and of those after it get its
    /// error for a token.
    pub fn next_tokens(&self, sessions: &mut [&mut Session]) -> Result<Vec<Result<u32>>> {
        let runner = &mut *self.enter()?;
        for session in sessions.iter_mut() {
            if !Arc::ptr_eq(&session.pool.runner, &self.runner) {
                let (expected, found) = ("a session of this pool".to_owned(), "one of another".to_owned());
                return Err(Error::Argument { argument: "sessions", expected, found });
            }
            session.settle(runner)?;
            session.check(session.tokens.len() + 1, &[])?;
            session.last_output(runner)?;
            session.sample_if_left(runner)?;
            session.reach(runner, 1)?;
        }
        let count = sessions.len();
        let mut tokens = Vec::with_capacity(count);
        for group in sessions.chunks_mut(most_sequences(self.model.config())) {
            match self.step(runner, group) {
                Ok(of_group) => tokens.extend(of_group),
                Err(error) if tokens.is_empty() => return Err(error),
                Err(error) => {
                    tokens.resize_with(count, || Err(error.clone()));
                    break;
                }
            }
        }
        Ok(tokens)
    }

    /// One step of a few sessions.
    fn step(&self, runner: &mut Runner, sessions: &mut [&mut Session]) -> Result<Vec<Result<u32>>> {
        let before = runner.submissions.place;
        if let [session] = sessions {
            return Ok(vec![session.next_token_of(runner)]);
        }
        let adjusts = sessions.iter().any(|session| session.adjusts());
        let (mut rows, mut adjustments) = (Vec::with_capacity(sessions.len()), Vec::new());
        for session in sessions.iter() {
            let listed = session.adjustments(&session.tokens, true);
            let (first_adjustment, count) = (adjustments.len() as u32, listed.len() as u32);
            let row = session.row(RowHeader::sampled(session.sequence), session.tokens.len());
            rows.push(RowHeader { first_adjustment, adjustments: count, ..row });
            adjustments.extend(listed);
        }
        let deepest = sessions.iter().map(|session| session.tokens.len()).max().unwrap_or_default();
        let options = self.model.prompt_options();
        let room = rows.len().next_power_of_two();
        let shape = BatchShape::of(room, Outputs::Sequences, deepest, self.cache.context);
        runner.shared_runs += 1; // a plan that is made may take the place of others and of what they left
        let ready = runner.plans.get(&self.model, shape, options.limit, &mut || Ok(()))?;
        if adjusts {
            // With room to spare: the lists grow with every token, and each larger room is planned anew.
            ready.adjust_up_to(&self.model, adjustments.len().next_power_of_two())?;
        }
        let filters = sessions.iter().any(|session| session.sampling.filters());
        let sampled = Sampled { adjustments: adjusts.then_some(&adjustments), filters, mask: None };
        runner.submissions.write(ready, &rows)?;
        let submitted = runner.submissions.run(ready, 0..ready.planned.end(), Some(sampled), before ^ 1).map(drop);
        let taken = submitted.and_then(|()| runner.submissions.take(self.model.gpu(), before));
        if let Err(Error::NoResult) = taken {
            runner.lost();
        }
        let mut tokens = Vec::with_capacity(sessions.len());
        for (row, session) in sessions.iter_mut().enumerate() {
            let Ok(words) = &taken else {
                session.output = None;
                let _ = session.settle(runner); // the error is that of the step
                continue;
            };
            session.confirm(runner);
            let token = known(words[session.sequence][0]);
            let at = RowOutput { shape, row, run: runner.shared_runs };
            session.output = token.as_ref().ok().map(|_| LastOutput::Row(at));
            session.unsampled = session.masked;
            session.tokens.extend(token.as_ref().ok());
            session.drafter.forget_sampled();
            session.drafter.block.forget_states(session.tokens.len());
            tokens.push(token);
        }
        taken.map(|_| tokens)
    }

    /// What computes, for a call that uses the device. Every such call comes through here.
    ///
    /// # Errors
    /// [`Error::Forked`], before the lock is waited for: the thread that held it may not exist in this process.
    pub(super) fn enter(&self) -> Result<MutexGuard<'_, Runner>> {
        self.model.gpu().check_process()?;
        Ok(self.runner())
    }

    /// The same, for a call that only looks, or forgets tokens.
    pub(super) fn runner(&self) -> MutexGuard<'_, Runner> {
        self.runner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runner {
    /// Whether there is but one session.
    pub fn is_alone(&self) -> bool {
        self.sequences.iter().filter(|taken| **taken).count() == 1
    }

    /// Work was lost: nobody knows what the device holds of tokens that no result has confirmed.
    pub fn lost(&mut self) {
        self.submissions.forget();
        self.pages.forget_all();
        self.losses += 1;
    }

    /// Copies the first KV rows of a page to another one.
    pub fn copy_page(&mut self, from: u32, to: u32, rows: usize) -> Result<()> {
        let Some(first) = self.plans.shared.caches.first() else { return Ok(()) };
        let (gpu, page) = (self.plans.alone.executor.gpu(), first.bytes() / self.pages.count().max(1) as u64);
        let bytes = page / PAGE as u64 * rows as u64;
        let between = gpu.buffer("page", bytes, BufferUse::Storage)?;
        let mut copies = Vec::new();
        for cache in &self.plans.shared.caches {
            let range = BufferRange { from: cache, offset: page * u64::from(from), bytes };
            copies.push(BufferCopy { range, to: &between, at: 0 });
            let range = BufferRange { from: &between, offset: 0, bytes };
            copies.push(BufferCopy { range, to: cache, at: page * u64::from(to) });
        }
        gpu.copy(&copies).map(drop)
    }

    /// Tells the device how tokens of a sequence are sampled.
    pub fn set_sampling(&self, sequence: usize, sampling: &Sampling) -> Result<()> {
        let at = (sequence * size_of::<Sampling>()) as u64;
        self.plans.alone.executor.gpu().write(&self.plans.shared.sampling, at, bytemuck::bytes_of(sampling))
    }

    /// Ends a session.
    pub fn leave(&mut self, sequence: usize) {
        self.sequences[sequence] = false;
        self.holder.take_if(|holder| *holder == sequence);
        self.listed.take_if(|listed| *listed == sequence);
        self.drafting.take_if(|drafting| *drafting == sequence);
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("cache", &self.cache).finish_non_exhaustive()
    }
}
