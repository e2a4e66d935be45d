//! Full pages of a session's cache as bytes, which can go elsewhere and come back.
//!
//! A page's bytes are the KV rows of its 256 tokens: those of each layer, and last those of the multi-token-prediction
//! block, if the model has one. They mean the same in every session of the same model with the same type of cache, on
//! any device.

use super::Session;
use super::pool_state::PoolState;
use super::snapshot::cache_type;
use crate::error::Result;
use crate::gpu::{BufferRange, Fetch, Results, StagedCopy};
use crate::plan::PAGE;

impl Session {
    /// All that the bytes of a page depend on, except its tokens and those before them.
    pub(crate) fn paging_identity(&self) -> [u64; 4] {
        let (model, kv_row) = (self.model(), self.kv_row_bytes());
        [model.fingerprint(), model.block_fingerprint(), cache_type(self.pool.cache().ty).into(), kv_row]
    }

    /// The bytes of a page.
    pub(crate) fn page_bytes(&self) -> u64 {
        PAGE as u64 * self.kv_row_bytes() * self.pool.state().plans.shared.caches.len() as u64
    }

    /// How many full pages the session has. Waits until they are computed.
    ///
    /// # Errors
    /// [`Error::NoResult`](crate::Error::NoResult) if work was lost; what the device reports.
    pub(crate) fn full_pages(&mut self) -> Result<usize> {
        let (mut state, sequence) = self.enter()?;
        if state.uses_block(sequence) && sequence.has_output() {
            state.catch_up(&mut [sequence], None)?;
        }
        state.newest(sequence)?;
        Ok(sequence.confirmed / PAGE)
    }

    /// Reads some of the session's full pages, given their places in its sequence.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory); what the device reports.
    pub(crate) fn read_pages(&mut self, places: &[usize]) -> Result<Vec<Vec<u8>>> {
        let bytes = PAGE as u64 * self.kv_row_bytes();
        let (state, sequence) = self.enter()?;
        let caches = &state.plans.shared.caches;
        let mut fetch = Fetch::new(state.model.gpu(), bytes * caches.len() as u64)?;
        let read = |place: &usize| {
            let offset = u64::from(sequence.pages[*place]) * bytes;
            let ranges: Vec<_> = caches.iter().map(|from| BufferRange { from, offset, bytes }).collect();
            fetch.read_ranges(&ranges)
        };
        places.iter().map(read).collect()
    }

    /// Makes the session hold its first `kept` full pages and then these, which have the bytes and the tokens of full
    /// pages that follow those.
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
        sequence.block.computed_to(sequence.tokens.len());
        sequence.block.forget_states(sequence.tokens.len());
        state.confirm(sequence);
        Ok(())
    }
}

impl PoolState {
    /// Writes bytes to pages, of which each layer has `bytes` bytes.
    fn fill_pages(&self, numbers: &[u32], bytes: u64, pages: &[Vec<u8>]) -> Result<()> {
        let (gpu, caches) = (self.model.gpu(), &self.plans.shared.caches);
        let mut staging = gpu.staging(bytes * caches.len() as u64)?;
        let mut fetch = Fetch::with_capacity(gpu, 0, Results::CAPACITY)?;
        for (number, page) in numbers.iter().zip(pages) {
            let offset = u64::from(*number) * bytes;
            let copy = |(from, to)| StagedCopy { from, to, offset, bytes };
            let copies: Vec<_> = (0..).step_by(bytes as usize).zip(caches).map(copy).collect();
            fetch.submit(&[], |shown| staging.send_with(gpu, &copies, shown, |mapped| mapped.write(0, page)))?;
        }
        staging.finish(gpu)?;
        fetch.check()
    }
}
