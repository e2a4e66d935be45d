//! A sequence of tokens and the cache that belongs to it.
//!
//! A session computes a reply's tokens one by one, each in one submission, and a prompt's many at a time; the host is at
//! most a few submissions ahead of the GPU. What the cache holds already is not computed again. The token that follows is
//! sampled on the GPU, which can go on with it before the host knows it: [`Session::next_token`]. How all that is done is
//! told in `session/run.rs`.

mod drafting;
#[cfg(feature = "constrain")]
mod guesses;
mod masking;
mod outputs;
mod pace;
mod pages;
mod parts;
mod plans;
mod pool;
mod profile;
mod run;
mod sampling;
mod snapshot;
mod submissions;
mod synthetic;
mod verify;

#[cfg(feature = "constrain")]
pub(crate) use guesses::{GuessedRows, GuessedStep};
pub use pool::Pool;
pub use profile::TokenProfile;
pub(crate) use synthetic::fill_with_noise;

use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::kernels::Sampling;
use crate::model::{BatchPlan, CacheShape, Model, PromptOptions};
use crate::plan::{PAGE, Plan, RowHeader};
use crate::sample::SamplerParams;
use crate::threads::stoppable_too;
use pages::Before;
use parts::Parts;
use pool::{RowOutput, Runner};
use std::sync::Arc;
use verify::Drafter;

/// What a call to [`Session::sync`] found in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
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
/// # }
/// # Ok(())
/// # }
/// ```
pub struct Session {
    pool: Pool,
    /// The plan of a row alone.
    planned: Arc<BatchPlan>,
    /// The place of its sequence among those of the pool.
    sequence: usize,
    /// Whose tokens it holds: it shares pages with sessions of the same tenant alone.
    tenant: u64,
    tokens: Vec<u32>,
    /// How many of the tokens a result has confirmed. If work is lost, the others are removed.
    confirmed: usize,
    /// The pages of the cache that hold the tokens' KV rows, in order.
    pages: Vec<u32>,
    /// How many of them are full and confirmed, so that other sessions can find them.
    offered: usize,
    /// How often the pool had lost work when the session noticed it last.
    losses: u64,
    /// What the device holds of the last token.
    output: Option<LastOutput>,
    options: PromptOptions,
    parts: Parts,
    /// How tokens are sampled: as it was asked for, and as the GPU has it.
    params: SamplerParams,
    sampling: Sampling,
    /// Whether sampling waits for a mask, and whether it waits for one after the last token.
    masked: bool,
    unsampled: bool,
    drafter: Drafter,
}

/// What the device holds of the last token, beside its KV rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastOutput {
    /// The token that was sampled after it.
    Sampled,
    /// That, its logits and its hidden state, in a row of a step of several rows: one that it took with other
    /// sessions, or that verified drafts.
    Row(RowOutput),
    /// That, and its logits. A snapshot holds nothing else.
    Logits,
    /// That, its logits and its hidden state.
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

    /// A session with a cache as given. Sessions that are used side by side may share one instead: see [`Pool`].
    ///
    /// # Errors
    /// As [`Session::new`], [`Error::Argument`] for a cache of no tokens, and [`Error::Unsupported`] for a type of cache that
    /// cannot hold the model's latents.
    pub fn with_cache(model: &Model, cache: CacheShape) -> Result<Self> {
        Pool::new(model, 1, cache, cache.context)?.session()
    }

    /// A session of a pool.
    fn of(pool: &Pool, sequence: usize, runner: &Runner) -> Result<Self> {
        let options = pool.model().prompt_options();
        runner.set_sampling(sequence, &Sampling::GREEDY)?;
        Ok(Self {
            pool: pool.clone(),
            planned: runner.plans.alone.planned.clone(),
            sequence,
            tenant: 0,
            tokens: Vec::new(),
            confirmed: 0,
            pages: Vec::new(),
            offered: 0,
            losses: runner.losses,
            output: None,
            options,
            parts: Parts::new(options),
            params: SamplerParams::greedy(),
            sampling: Sampling::GREEDY,
            masked: false,
            unsampled: false,
            drafter: Drafter::new(pool.model().gpu().report().is_software()),
        })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        self.pool.model()
    }

    /// The tokens fed so far.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Tokens the cache can hold.
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

    /// Makes the session hold exactly `tokens`, keeping the cache of the longest common prefix. The logits
    /// of the last token are there afterwards.
    ///
    /// # Errors
    /// As [`Session::feed`]; tokens that are too many or unknown leave the session as it was.
    pub fn sync(&mut self, tokens: &[u32]) -> Result<Reuse> {
        self.sync_with(tokens, &Cancel::default(), &mut |_| {})
    }

    /// Like [`Session::sync`], with the `cancel` and the `progress` of [`Session::feed_with`].
    ///
    /// # Errors
    /// As [`Session::feed_with`]; tokens that are too many or unknown leave the session as it was.
    pub fn sync_with(&mut self, tokens: &[u32], cancel: &Cancel, progress: &mut dyn FnMut(usize)) -> Result<Reuse> {
        let cached = self.keep_common(tokens)?;
        self.feed_with(&tokens[cached..], cancel, progress)?;
        Ok(Reuse { cached, new: tokens.len() - cached })
    }

    /// Forgets all but what `tokens` begin with, unless they would not fit: then it keeps everything. Returns how many
    /// of them need not be computed again, because this session or another one of the pool has computed them.
    pub(crate) fn keep_common(&mut self, tokens: &[u32]) -> Result<usize> {
        let cached = self.reusable(tokens);
        self.check(cached, &tokens[cached..])?;
        let pool = self.pool.clone();
        let runner = &mut *pool.enter()?;
        self.rewind_in(runner, cached);
        self.share(runner, tokens)?;
        Ok(self.tokens.len())
    }

    /// Whose tokens the session holds.
    pub(crate) fn tenant(&self) -> u64 {
        self.tenant
    }

    /// Hands the session to a tenant. Nothing of another one's tokens is left in it.
    pub(crate) fn set_tenant(&mut self, tenant: u64) {
        if tenant != self.tenant {
            self.rewind(0);
            self.tenant = tenant;
        }
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

    /// Forgets all tokens but the first `length`. In a process that was forked, where no other call works, it does nothing.
    pub fn rewind(&mut self, length: usize) {
        let pool = self.pool.clone();
        if let Ok(mut runner) = pool.enter() {
            self.rewind_in(&mut runner, length);
        }
    }

    fn rewind_in(&mut self, runner: &mut Runner, length: usize) {
        if length < self.tokens.len() {
            if length <= self.confirmed && runner.is_alone() {
                runner.submissions.forget(); // what they computed is not needed any more
            }
            self.truncate(runner, length);
        }
    }

    fn truncate(&mut self, runner: &mut Runner, length: usize) {
        self.drafter.truncate(&self.tokens, length);
        self.tokens.truncate(length);
        self.confirmed = self.confirmed.min(length);
        self.output = None;
        let pages = length.div_ceil(PAGE).min(self.pages.len());
        runner.pages.release(self.pages.drain(pages..));
        self.offered = self.offered.min(length / PAGE);
    }

    /// Takes notice of work that was lost while other sessions used the device.
    ///
    /// # Errors
    /// [`Error::NoResult`] if it may have been this session's. Then it keeps the tokens that a result has confirmed.
    fn settle(&mut self, runner: &mut Runner) -> Result<()> {
        if self.losses == runner.losses {
            return Ok(());
        }
        self.losses = runner.losses;
        self.offered = 0;
        if self.confirmed == self.tokens.len() {
            return Ok(());
        }
        self.truncate(runner, self.confirmed);
        Err(Error::NoResult)
    }

    /// All of its tokens are confirmed, and its full pages can be found by other sessions.
    fn confirm(&mut self, runner: &mut Runner) {
        self.confirmed = self.tokens.len();
        for index in self.offered..self.confirmed / PAGE {
            let before = self.before(index);
            runner.pages.offer(self.pages[index], before, &self.tokens[index * PAGE..(index + 1) * PAGE]);
            self.offered = index + 1;
        }
    }

    /// What stands before a page of its list.
    fn before(&self, index: usize) -> Before {
        index.checked_sub(1).map_or(Before::Start(self.tenant), |before| Before::Page(self.pages[before]))
    }

    /// Takes over full pages that other sessions hold of `tokens`, which begin with those of this session. The last token is
    /// left to be computed, so that there will be logits of it.
    fn share(&mut self, runner: &mut Runner, tokens: &[u32]) -> Result<()> {
        let (first, most) = (self.tokens.len() / PAGE, tokens.len().saturating_sub(1) / PAGE);
        let mut shared = Vec::new();
        let mut before = self.before(first);
        for page in tokens.chunks_exact(PAGE).take(most).skip(first) {
            let Some(found) = runner.pages.find(before, page) else { break };
            shared.push(found);
            before = Before::Page(found);
        }
        if shared.is_empty() {
            return Ok(());
        }
        runner.pages.release(self.pages.drain(first..));
        self.pages.extend(shared);
        self.tokens = tokens[..self.pages.len() * PAGE].to_vec();
        (self.confirmed, self.offered, self.output) = (self.tokens.len(), self.pages.len(), None);
        self.drafter.block.computed_to(self.tokens.len());
        self.drafter.block.forget_states(self.tokens.len());
        self.list_pages(runner, first)
    }

    /// Makes room for the KV rows of `count` tokens behind those that are there, in pages that no other session reads.
    ///
    /// # Errors
    /// [`Error::PoolFull`]; what the device reports.
    fn reach(&mut self, runner: &mut Runner, count: usize) -> Result<()> {
        let (length, last) = (self.tokens.len(), (self.tokens.len() + count).div_ceil(PAGE));
        let first = length / PAGE;
        let more = last.saturating_sub(self.pages.len());
        let shared = self.pages.get(first).copied().filter(|page| runner.pages.is_shared(*page));
        // All that are needed, or none: the device has to know every page that the session holds.
        let mut taken = runner.pages.take(more + usize::from(shared.is_some()))?.into_iter();
        match (shared, self.pages.get_mut(first)) {
            (Some(shared), Some(page)) => {
                *page = taken.next().unwrap_or(shared);
                let own = *page;
                runner.pages.release([shared]);
                runner.copy_page(shared, own, length % PAGE)?;
            }
            (None, Some(page)) => runner.pages.forget(*page),
            (_, None) => {}
        }
        self.pages.extend(taken);
        if more > 0 || shared.is_some() { self.list_pages(runner, first) } else { Ok(()) }
    }

    /// Whether the session can take part in a step of its pool, for which it then holds the pages.
    ///
    /// # Errors
    /// Those of [`Pool::next_tokens`] that are about this session.
    pub(crate) fn make_ready(&mut self) -> Result<()> {
        self.check(self.tokens.len() + 1, &[])?;
        self.with_runner(|session, runner| {
            session.last_output(runner)?;
            session.reach(runner, 1)
        })
    }

    /// Tells the device the pages from one on.
    fn list_pages(&self, runner: &mut Runner, first: usize) -> Result<()> {
        runner.listed.take_if(|listed| *listed == self.sequence);
        let at = 4 * (self.first_page() + first) as u64;
        let list = bytemuck::cast_slice(&self.pages[first..]);
        self.model().gpu().write(&runner.plans.shared.lists, at, list)
    }

    /// Tells the plan of a row alone the pages, unless it has them.
    fn list_alone(&self, runner: &mut Runner) -> Result<()> {
        if self.pool.sessions() == 1 || runner.listed == Some(self.sequence) {
            return Ok(());
        }
        runner.listed = Some(self.sequence);
        self.model().gpu().write(&runner.plans.shared.lists, 0, bytemuck::cast_slice(&self.pages))
    }

    /// Where its list of pages begins among all lists. The only session of a pool has that of a row alone.
    fn first_page(&self) -> usize {
        let list = if self.pool.sessions() == 1 { 0 } else { 1 + self.sequence };
        list * self.context().div_ceil(PAGE)
    }

    /// A row of its sequence.
    fn row(&self, token: u32, position: usize) -> RowHeader {
        let [position, sequence, first_page] = [position, self.sequence, self.first_page()].map(|n| n as u32);
        RowHeader { token, position, sequence, result: sequence, first_page, ..RowHeader::default() }
    }

    /// What the device holds of the last token.
    fn last_output(&self, runner: &Runner) -> Result<LastOutput> {
        let expected = "at least one token fed since the start or the last rewind".to_owned();
        let output = self.output.ok_or(Error::Argument { argument: "session", expected, found: "none".into() })?;
        let there = match output {
            LastOutput::Sampled => false,
            LastOutput::Row(at) => at.run == runner.shared_runs,
            LastOutput::Logits | LastOutput::Hidden => runner.holder == Some(self.sequence),
        };
        Ok(if there { output } else { LastOutput::Sampled })
    }

    /// Replaces the session by an empty one of another model, which has to be the same file's, usually on a new device
    /// after [`Error::DeviceLost`]. The cache has the same size and type, and prompts are computed in the same way; a
    /// session of a [`Pool`] gets a cache of its own. The tokens have to be fed again: [`Session::tokens`] has them until
    /// then.
    ///
    /// # Errors
    /// [`Error::Argument`] if the model is another file's; those of [`Session::with_cache`]. After an error the session is
    /// as it was.
    pub fn move_to(&mut self, model: &Model) -> Result<()> {
        let (own, other) = (self.model().fingerprint(), model.fingerprint());
        if own != other {
            let named = |fingerprint: u64| format!("model {fingerprint:016x}");
            return Err(Error::Argument { argument: "model", expected: named(own), found: named(other) });
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

    /// How prompts are computed from here on: as the model was loaded with until this is called.
    pub fn set_prompt_options(&mut self, options: PromptOptions) {
        let options = options.on(self.model().gpu().report());
        if options != self.options {
            (self.options, self.parts) = (options, Parts::new(options));
        }
    }
}

/// Does work of a session that is to stop once `cancel` is cancelled, also where it waits for the end of a
/// [pause](crate::gpu::Gpu::pause).
fn heeding<T>(cancel: &Cancel, work: impl FnOnce() -> T) -> T {
    let cancel = cancel.clone();
    stoppable_too(move || cancel.is_cancelled(), work)
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
        let runner = &mut *self.pool.runner();
        runner.pages.release(self.pages.drain(..));
        runner.leave(self.sequence);
    }
}
