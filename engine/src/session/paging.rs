//! Reads full pages of a session's cache as bytes, and restores them.
//!
//! A page's bytes are the KV rows of its 256 tokens: those of each layer, and last those of the multi-token-prediction
//! block, if it has computed them. They mean the same in every session of the same model with the same type of cache
//! and the same arithmetic, on any device.

use super::Session;
use super::pool_state::PoolState;
use super::snapshot::cache_type;
use crate::error::Result;
use crate::gpu::{Buffer, BufferRange, Fetch, Results, StagedCopy};
use crate::plan::PAGE;
use crate::quant::Arithmetic;

impl Session {
    /// All that the layers' bytes of a page depend on, except its tokens and those before them.
    pub(crate) fn paging_identity(&self) -> Vec<u64> {
        let (model, kv_row) = (self.model(), self.kv_row_bytes());
        let arithmetic = u64::from(model.target().arithmetic == Arithmetic::Int);
        let rest = [arithmetic, cache_type(self.pool.cache().ty).into(), kv_row];
        model.digest().into_iter().chain(rest).collect()
    }

    /// The same for the bytes of the multi-token-prediction block; 0 if there is none.
    pub(crate) fn paging_block(&self) -> u64 {
        self.model().block_fingerprint()
    }

    /// The bytes of a page, with or without those of the block.
    pub(crate) fn page_bytes(&self, with_block: bool) -> u64 {
        PAGE as u64 * self.kv_row_bytes() * self.pool.state().paged(with_block).len() as u64
    }

    /// Whether the block's rows of a full page were computed.
    pub(crate) fn has_block_rows(&self, place: usize) -> bool {
        self.sequence.block.has_rows(place * PAGE..(place + 1) * PAGE)
    }

    /// How many full pages the session has. Waits until they are computed.
    ///
    /// # Errors
    /// [`Error::NoResult`](crate::Error::NoResult) if work was lost; what the device reports.
    pub(crate) fn full_pages(&mut self) -> Result<usize> {
        let (mut state, sequence) = self.enter()?;
        if state.uses_block(sequence) && sequence.has_output() {
            state.catch_up_if_possible(sequence, None)?;
        }
        state.newest(sequence)?;
        Ok(sequence.confirmed / PAGE)
    }

    /// Reads one of the session's full pages, given its place in its sequence.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory); what the device reports.
    pub(crate) fn read_page(&mut self, place: usize, with_block: bool) -> Result<Vec<u8>> {
        let bytes = PAGE as u64 * self.kv_row_bytes();
        let (state, sequence) = self.enter()?;
        let caches = state.paged(with_block);
        let offset = u64::from(sequence.pages[place]) * bytes;
        let ranges: Vec<_> = caches.iter().map(|from| BufferRange { from, offset, bytes }).collect();
        Fetch::new(state.model.gpu(), bytes * caches.len() as u64)?.read_ranges(&ranges)
    }

    /// Makes the session hold its first `kept` full pages and then these, which have the bytes and the tokens of full
    /// pages that follow those, each with or without the bytes of the multi-token-prediction block.
    ///
    /// # Errors
    /// [`Error::PoolFull`](crate::Error::PoolFull); what the device reports. The session then holds the pages that it
    /// kept.
    pub(crate) fn append_pages(&mut self, kept: usize, tokens: &[u32], pages: &[Vec<u8>]) -> Result<()> {
        let bytes = PAGE as u64 * self.kv_row_bytes();
        let (mut state, sequence) = self.enter()?;
        let state = &mut *state;
        state.rewind(sequence, kept * PAGE);
        state.reach(sequence, tokens.len())?;
        let filled = state.fill_pages(&sequence.pages[kept..], bytes, pages);
        if filled.is_err() {
            state.cut(sequence, kept * PAGE);
            return filled;
        }
        sequence.tokens.extend_from_slice(tokens);
        (sequence.output, sequence.sampled) = (None, None);
        let with_block = |page: &Vec<u8>| page.len() as u64 == bytes * state.paged(true).len() as u64;
        let rows = pages.iter().rposition(|page| !with_block(page)).map_or(kept, |last| kept + last + 1) * PAGE;
        sequence.block.has_from(rows, sequence.tokens.len());
        sequence.block.forget_states(sequence.tokens.len());
        state.confirm(sequence);
        Ok(())
    }
}

impl PoolState {
    /// The caches of which a page has bytes: those of the layers, and that of the block, which is the last one.
    fn paged(&self, with_block: bool) -> &[Buffer] {
        let (caches, layers) = (&self.plans.shared.caches, self.model.config().layers);
        if with_block { caches } else { &caches[..layers.min(caches.len())] }
    }

    /// Writes bytes to pages, of which each layer has `bytes` bytes.
    fn fill_pages(&self, numbers: &[u32], bytes: u64, pages: &[Vec<u8>]) -> Result<()> {
        let (gpu, caches) = (self.model.gpu(), &self.plans.shared.caches);
        let mut staging = gpu.staging(bytes * caches.len() as u64)?;
        let mut fetch = Fetch::with_capacity(gpu, 0, Results::CAPACITY)?;
        for (number, page) in numbers.iter().zip(pages) {
            let offset = u64::from(*number) * bytes;
            let copy = |(from, to)| StagedCopy { from, to, offset, bytes };
            let copies: Vec<_> = (0..page.len() as u64).step_by(bytes as usize).zip(caches).map(copy).collect();
            fetch.submit(&[], |shown| staging.send_with(gpu, &copies, shown, |mapped| mapped.write(0, page)))?;
        }
        staging.finish(gpu)?;
        fetch.check()
    }
}
