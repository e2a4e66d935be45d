//! The state that the sessions of a pool share on the device: the pages of the cache, the plans, and running work.

use super::guesses::CommonDrafter;
use super::owners::Owners;
use super::pages::Pages;
use super::plans::Plans;
use super::sequence::Sequence;
use super::submissions::Submissions;
use crate::error::{Error, Result};
use crate::gpu::{BufferCopy, BufferRange, BufferUse, Fetch};
use crate::kernels::Sampling;
use crate::model::{BatchWriter, CacheShape, Model};
use crate::plan::PAGE;

/// The shared part of a pool. Its steps are in `session/step.rs`.
pub(super) struct PoolState {
    pub model: Model,
    /// The cache of each session.
    pub cache: CacheShape,
    pub pages: Pages,
    pub plans: Plans,
    pub submissions: Submissions,
    /// Reads logits and hidden states.
    pub fetch: Fetch,
    pub owners: Owners,
    /// Decides about guesses in steps that several sessions take together.
    pub drafter: CommonDrafter,
    /// Which sequences belong to a session.
    sequences: Vec<bool>,
    /// How often work was lost.
    losses: u64,
}

impl PoolState {
    /// Creates the state for up to `sessions` sessions with this cache, which together hold up to `pages` pages.
    pub fn new(model: &Model, cache: CacheShape, pages: usize, sessions: usize) -> Result<Self> {
        let (gpu, config) = (model.gpu(), model.config());
        gpu.check_process()?;
        let plans = Plans::new(model, cache, pages, sessions)?;
        Ok(Self {
            model: model.clone(),
            cache,
            pages: Pages::new(pages),
            submissions: Submissions::new(gpu, BatchWriter::new(config), plans.shared.sampled.clone())?,
            plans,
            fetch: Fetch::new(gpu, 4 * config.vocab.max(config.width) as u64)?,
            owners: Owners::default(),
            drafter: CommonDrafter::new(gpu.report().is_software()),
            sequences: vec![false; sessions],
            losses: 0,
        })
    }

    /// The most sessions at a time.
    pub fn sessions(&self) -> usize {
        self.sequences.len()
    }

    /// A new sequence.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are as many as possible; any error from the device.
    pub fn join(&mut self) -> Result<Sequence> {
        let Some(index) = self.sequences.iter().position(|taken| !taken) else {
            let most = self.sessions();
            let (expected, found) = (format!("at most {most} sessions at a time"), format!("{}", most + 1));
            return Err(Error::argument("sessions", expected, found));
        };
        self.write_sampling(index, &Sampling::GREEDY)?;
        self.sequences[index] = true;
        // A pool of one session uses the first list, which is the single-row plan's.
        let list = if self.sessions() == 1 { 0 } else { 1 + index };
        Ok(Sequence::new(index, list * self.cache.context.div_ceil(PAGE), self.losses))
    }

    /// Ends a sequence.
    pub fn leave(&mut self, sequence: &mut Sequence) {
        self.pages.release(sequence.pages.drain(..));
        self.sequences[sequence.index] = false;
        self.owners.drop_list(sequence.index);
    }

    /// Writes the sampling parameters of a sequence to the device.
    pub fn write_sampling(&self, sequence: usize, sampling: &Sampling) -> Result<()> {
        let at = (sequence * size_of::<Sampling>()) as u64;
        self.model.gpu().write(&self.plans.shared.sampling, at, bytemuck::bytes_of(sampling))
    }

    /// Removes all tokens of a sequence but the first `length`, and releases the pages that were reserved for more.
    pub fn rewind(&mut self, sequence: &mut Sequence, length: usize) {
        if length >= sequence.tokens.len() {
            let held = sequence.tokens.len().div_ceil(PAGE);
            if held < sequence.pages.len() {
                sequence.block.made = 0; // drafts may lie in these pages
                self.pages.release(sequence.pages.drain(held..));
            }
            return;
        }
        let is_alone = self.sequences.iter().filter(|taken| **taken).count() == 1;
        if length <= sequence.confirmed && is_alone {
            self.submissions.forget(); // their results are no longer needed
        }
        self.cut(sequence, length);
    }

    /// Removes all tokens of a sequence but the first `length`, and releases their pages.
    pub fn cut(&mut self, sequence: &mut Sequence, length: usize) {
        sequence.cut(length);
        let pages = length.div_ceil(PAGE).min(sequence.pages.len());
        self.pages.release(sequence.pages.drain(pages..));
    }

    /// Records that work was lost. The content of the cache is unknown for tokens that no result has confirmed; each
    /// sequence [settles](Self::settle) that when it is next used.
    pub fn lose(&mut self) {
        self.submissions.forget();
        self.pages.forget_all();
        self.losses += 1;
    }

    /// Makes a sequence drop the tokens that may have been lost since it was last used.
    ///
    /// # Errors
    /// [`Error::NoResult`] if any may have been its own. It keeps the tokens that a result has confirmed.
    pub fn settle(&mut self, sequence: &mut Sequence) -> Result<()> {
        if sequence.losses == self.losses {
            return Ok(());
        }
        (sequence.losses, sequence.offered) = (self.losses, 0);
        if sequence.confirmed == sequence.tokens.len() {
            return Ok(());
        }
        self.cut(sequence, sequence.confirmed);
        Err(Error::NoResult)
    }

    /// Records that all tokens of a sequence are confirmed, and lets other sequences find its full pages.
    pub fn confirm(&mut self, sequence: &mut Sequence) {
        sequence.confirmed = sequence.tokens.len();
        for index in sequence.offered..sequence.confirmed / PAGE {
            let tokens = &sequence.tokens[index * PAGE..(index + 1) * PAGE];
            self.pages.offer(sequence.pages[index], sequence.before(index), tokens);
            sequence.offered = index + 1;
        }
    }

    /// Gives a sequence the full pages that others hold of `tokens`, which begin with its own. The last token is left
    /// to be computed, so that its logits become available.
    pub fn share(&mut self, sequence: &mut Sequence, tokens: &[u32]) -> Result<()> {
        let (first, most) = (sequence.tokens.len() / PAGE, tokens.len().saturating_sub(1) / PAGE);
        let mut shared = Vec::new();
        let mut before = sequence.before(first);
        for page in tokens.chunks_exact(PAGE).take(most).skip(first) {
            let Some(found) = self.pages.find(before, page) else { break };
            shared.push(found);
            before = super::pages::Before::Page(found);
        }
        if shared.is_empty() {
            return Ok(());
        }
        self.pages.release(sequence.pages.drain(first..));
        sequence.pages.extend(shared);
        sequence.tokens = tokens[..sequence.pages.len() * PAGE].to_vec();
        (sequence.confirmed, sequence.offered) = (sequence.tokens.len(), sequence.pages.len());
        sequence.output = None;
        sequence.block.has_from(sequence.tokens.len(), sequence.tokens.len()); // by whom is unknown
        sequence.block.forget_states(sequence.tokens.len());
        let listed = self.list_pages(sequence, first, &sequence.pages[first..]);
        if listed.is_err() {
            self.cut(sequence, first * PAGE); // the device does not know these pages
        }
        listed
    }

    /// Gives a sequence the pages for `count` more tokens. No other sequence reads these pages: one that it shares is
    /// copied, and tokens on that page are not confirmed until the next result.
    ///
    /// # Errors
    /// [`Error::PoolFull`]; any error from the device. The sequence is then unchanged, except after
    /// [`Error::NoResult`].
    pub fn reach(&mut self, sequence: &mut Sequence, count: usize) -> Result<()> {
        let (length, last) = (sequence.tokens.len(), (sequence.tokens.len() + count).div_ceil(PAGE));
        let first = length / PAGE;
        let more = last.saturating_sub(sequence.pages.len());
        let shared = sequence.pages.get(first).copied().filter(|page| self.pages.is_shared(*page));
        if let (None, Some(page)) = (shared, sequence.pages.get(first)) {
            self.pages.forget(*page);
        }
        // All of them or none: the device has to know every page that the sequence holds.
        let instead = usize::from(shared.is_some());
        let taken = self.pages.take(instead + more)?;
        if taken.is_empty() {
            return Ok(());
        }
        let (own, new) = taken.split_at(instead);
        let mut pages = sequence.pages[first..].to_vec();
        pages[..instead].copy_from_slice(own);
        pages.extend(new);
        // With the next row, which is there if the last token is computed again.
        let rows = length % PAGE + 1;
        let copied = shared.zip(own.first()).map_or(Ok(()), |(from, to)| self.copy_page(from, *to, rows));
        let copied = self.or_rewound(&mut [&mut *sequence], copied);
        let listed = copied.and_then(|()| self.list_pages(sequence, first, &pages));
        if listed.is_err() {
            self.pages.release(taken);
            return listed;
        }
        if shared.is_some() {
            sequence.confirmed = sequence.confirmed.min(first * PAGE);
        }
        self.pages.release(shared);
        sequence.pages.truncate(first);
        sequence.pages.extend(pages);
        Ok(())
    }

    /// Removes all tokens of a sequence, and gives it the pages for `count` others.
    ///
    /// # Errors
    /// [`Error::PoolFull`], after which the sequence is unchanged; any error from the device, after which it is empty.
    pub fn replace(&mut self, sequence: &mut Sequence, count: usize) -> Result<()> {
        self.pages.check_exchange(&sequence.pages, count.div_ceil(PAGE))?;
        self.rewind(sequence, 0);
        self.reach(sequence, count)
    }

    /// Copies the first KV rows of a page to another page.
    fn copy_page(&mut self, from: u32, to: u32, rows: usize) -> Result<()> {
        let Some(first) = self.plans.shared.caches.first() else { return Ok(()) };
        let (gpu, page) = (self.model.gpu(), first.bytes() / self.pages.count().max(1) as u64);
        let bytes = page / PAGE as u64 * rows as u64;
        let between = gpu.buffer("page", bytes, BufferUse::Storage)?;
        let mut copies = Vec::new();
        for cache in &self.plans.shared.caches {
            let range = BufferRange { from: cache, offset: page * u64::from(from), bytes };
            copies.push(BufferCopy { range, to: &between, at: 0 });
            let range = BufferRange { from: &between, offset: 0, bytes };
            copies.push(BufferCopy { range, to: cache, at: page * u64::from(to) });
        }
        self.submissions.copy(&self.plans.alone, &copies)
    }

    /// Writes the pages of a sequence from index `first` on to its list on the device.
    fn list_pages(&mut self, sequence: &Sequence, first: usize, pages: &[u32]) -> Result<()> {
        self.owners.drop_list(sequence.index);
        let at = 4 * (sequence.first_page + first) as u64;
        self.model.gpu().write(&self.plans.shared.lists, at, bytemuck::cast_slice(pages))
    }

    /// Writes the list of a sequence's pages to where the single-row plan reads it, unless it is there.
    pub fn list_alone(&mut self, sequence: &Sequence) -> Result<()> {
        if self.sessions() == 1 || !self.owners.take_list(sequence.index) {
            return Ok(());
        }
        self.model.gpu().write(&self.plans.shared.lists, 0, bytemuck::cast_slice(&sequence.pages))
    }
}
