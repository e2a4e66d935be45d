//! Sessions that outlive the program that created them.
//!
//! A snapshot has the tokens, their part of the cache, and the logits of the last token, so that a session continues
//! from it exactly like the session that it was taken from. It fits sessions of the same file and the same type of
//! cache, if their context is large enough, on any device and with any multi-token-prediction block or none: with
//! another block, drafts are worse until it has processed enough tokens. A file and a block are identified by the
//! file's header and the checksums of the weights as the GPU has them, which are the same on every device; a version of
//! wglm with another layout of weights would refuse older snapshots.

mod file;
mod format;

use super::owners::{Output, Values};
use super::pages::runs;
use super::pool_state::PoolState;
use super::sequence::Sequence;
use super::{Session, heeding};
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::gpu::{Fetch, Results, StagedCopy};
use crate::kernels::CacheType;
use crate::model::CacheShape;
use crate::plan::PAGE;
use format::{Header, PIECE, Reader, Writer, damaged};
use std::io::{Cursor, Read, Seek, Write};
use std::path::Path;

impl Session {
    /// The session as bytes, with the part of the cache that its tokens fill.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is no memory to read the cache into; [`Error::NoResult`] if its content was
    /// lost; any error from the device.
    pub fn snapshot(&mut self) -> Result<Vec<u8>> {
        self.snapshot_with(&Cancel::default())
    }

    /// Like [`Session::snapshot`]. `cancel` stops it.
    ///
    /// # Errors
    /// The errors of [`Session::snapshot`], and [`Error::Cancelled`].
    pub fn snapshot_with(&mut self, cancel: &Cancel) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.write_snapshot(&mut bytes, in_memory(), cancel)?;
        Ok(bytes)
    }

    /// Restores the state that a session, this one or another, had when the snapshot was taken. Sampling does not
    /// change. The part for another multi-token-prediction block is ignored: no text depends on it, but drafts are
    /// worse until the block has processed enough tokens.
    ///
    /// # Errors
    /// [`Error::Snapshot`] for bytes that are damaged, or belong to another file or another type of cache,
    /// [`Error::ContextFull`] for more tokens than the session's context holds, [`Error::TokenOutOfRange`] for an
    /// unknown token, [`Error::PoolFull`] if the other sessions of the pool leave too little room: after these the
    /// session is unchanged. [`Error::NoResult`] if the cache did not receive its content, and any error from the
    /// device: after that it is empty.
    pub fn restore(&mut self, snapshot: &[u8]) -> Result<()> {
        self.restore_with(snapshot, &Cancel::default())
    }

    /// Like [`Session::restore`]. `cancel` stops it.
    ///
    /// # Errors
    /// The errors of [`Session::restore`], and [`Error::Cancelled`], after which the session is unchanged or, if the
    /// cache was being filled, empty.
    pub fn restore_with(&mut self, snapshot: &[u8], cancel: &Cancel) -> Result<()> {
        self.read_snapshot(Cursor::new(snapshot), in_memory(), self.tenant(), cancel)
    }

    /// The header of a snapshot of `tokens` tokens with `logits` logits.
    fn header(&self, tokens: usize, logits: usize) -> Header {
        let (cache, layers) = (self.pool.cache(), self.model().config().layers + usize::from(self.model().has_block()));
        let shape = [cache_type(cache.ty), layers as u32, self.kv_row_bytes() as u32];
        let model = self.model();
        Header::new(shape, [model.fingerprint(), model.block_fingerprint()], [tokens as u32, logits as u32])
    }

    /// The bytes of a token's KV row in a layer.
    pub(super) fn kv_row_bytes(&self) -> u64 {
        CacheShape { context: 1, ..self.pool.cache() }.layer_bytes(self.model().config()) / PAGE as u64
    }

    fn write_snapshot(&mut self, to: &mut dyn Write, path: &Path, cancel: &Cancel) -> Result<()> {
        cancel.check()?;
        heeding(cancel, || self.write_with(Writer::new(to, path, cancel)))
    }

    fn write_with(&mut self, mut writer: Writer<'_>) -> Result<()> {
        let (tokens, output) = (self.tokens().len(), self.sequence.has_output());
        let header = self.header(tokens, if output { self.model().config().vocab } else { 0 });
        let (mut state, sequence) = self.enter()?;
        if state.uses_block(sequence) && output {
            state.catch_up_if_possible(sequence, None)?;
        }
        let logits = if output { state.logits(sequence)? } else { Vec::new() };
        state.newest(sequence)?; // checks that no work that the cache depends on was lost
        writer.write(bytemuck::bytes_of(&header))?;
        writer.write(bytemuck::cast_slice(&sequence.tokens))?;
        let pieces = pieces(sequence, header.kv_row.into(), tokens);
        let mut fetch = Fetch::new(state.model.gpu(), header.layer_bytes().min(PIECE as u64))?;
        for cache in &state.plans.shared.caches {
            for (offset, bytes) in &pieces {
                writer.write(&fetch.read(cache, *offset, *bytes)?)?;
            }
        }
        writer.write(bytemuck::cast_slice(&logits))?;
        writer.finish()
    }

    /// Restores a snapshot, whose tokens then belong to a tenant.
    fn read_snapshot(&mut self, from: impl Read + Seek, path: &Path, tenant: u64, cancel: &Cancel) -> Result<()> {
        self.model().gpu().check_process()?; // before any token is dropped
        let mut reader = Reader::open(from, path, cancel)?;
        let header = reader.header;
        self.expect(&header)?;
        let tokens = reader.words(header.tokens)?;
        self.check(0, &tokens)?;
        heeding(cancel, || {
            self.pool.enter()?.replace(&mut self.sequence, tokens.len())?;
            self.sequence.tenant = tenant;
            let restored = self.read_rest(&mut reader, tokens);
            restored.inspect_err(|_| self.pool.state().cut(&mut self.sequence, 0)) // releases the reserved pages too
        })
    }

    /// Restores what follows the tokens in a snapshot, in an empty session that has the pages for them.
    fn read_rest(&mut self, reader: &mut Reader<'_, impl Read + Seek>, tokens: Vec<u32>) -> Result<()> {
        let (mut state, sequence) = self.enter()?;
        let state = &mut *state;
        let filled = fill_caches(state, sequence, reader)?;
        let logits: Vec<u32> = reader.words(reader.header.logits)?;
        reader.finish()?;
        sequence.tokens = tokens;
        state.confirm(sequence);
        let has_block = filled > state.model.config().layers;
        let filled = if has_block { sequence.tokens.len() } else { 0 };
        sequence.block.has_from(filled, filled);
        sequence.block.forget_states(sequence.tokens.len());
        if logits.is_empty() {
            return Ok(());
        }
        let run = state.owners.take_alone();
        sequence.output = Some(Output { run, values: Values::Logits, sampled: false });
        let to = state.plans.alone.executor.local(state.plans.alone.head()?.logits.buffer.local()?);
        state.model.gpu().write(to, 0, bytemuck::cast_slice(&logits))?;
        state.sample_if_left(sequence)
    }

    /// Checks that a snapshot's header fits this session.
    fn expect(&self, header: &Header) -> Result<()> {
        let (own, vocab) = (self.header(0, 0), self.model().config().vocab);
        if header.cache_type != own.cache_type {
            return Err(damaged("its type of cache", name(own.cache_type), name(header.cache_type)));
        }
        // The last layer may be that of a multi-token-prediction block, on which no text depends.
        let layers = self.model().config().layers as u32;
        let with_block = (layers..=layers + 1).contains(&header.layers);
        if !with_block || (header.model, header.kv_row) != (own.model, own.kv_row) {
            let shape = |h: &Header| format!("model {:016x}, {} layers, {} bytes a token", h.model, h.layers, h.kv_row);
            return Err(damaged("its model", shape(&own), shape(header)));
        }
        if header.tokens as usize > self.context() {
            return Err(Error::ContextFull { needed: header.tokens as usize, context: self.context() });
        }
        if header.logits != 0 && (header.logits as usize != vocab || header.tokens == 0) {
            return Err(damaged("its logits", format!("none or {vocab}"), header.logits.to_string()));
        }
        Ok(())
    }
}

/// The pieces of each layer's cache with the KV rows of `tokens` tokens: the first byte and the number of bytes of
/// each.
fn pieces(sequence: &Sequence, kv_row: u64, tokens: usize) -> Vec<(u64, u64)> {
    let (mut left, mut pieces) = (tokens, Vec::new());
    for (page, count) in runs(&sequence.pages) {
        let rows = left.min(count * PAGE);
        let (start, bytes) = (u64::from(page) * PAGE as u64 * kv_row, rows as u64 * kv_row);
        let cut = (0..bytes).step_by(PIECE);
        pieces.extend(cut.map(|from| (start + from, (bytes - from).min(PIECE as u64))));
        left -= rows;
    }
    pieces
}

/// Fills the caches of the layers and of the multi-token-prediction block, if it is the one of the snapshot. Returns
/// how many were filled.
fn fill_caches(state: &PoolState, sequence: &Sequence, reader: &mut Reader<'_, impl Read + Seek>) -> Result<usize> {
    let (gpu, header, caches) = (state.model.gpu(), reader.header, &state.plans.shared.caches);
    let (stored, layers) = (header.layers as usize, state.model.config().layers);
    let taken = if header.block == state.model.block_fingerprint() { stored } else { layers };
    let pieces = pieces(sequence, header.kv_row.into(), header.tokens as usize);
    let mut bytes = vec![0; header.layer_bytes().min(PIECE as u64) as usize];
    let mut staging = gpu.staging(bytes.len() as u64)?;
    let mut fetch = Fetch::with_capacity(gpu, 0, Results::CAPACITY)?;
    for cache in caches.iter().take(taken) {
        for &(offset, count) in &pieces {
            let piece = &mut bytes[..count as usize];
            reader.read(piece)?;
            let copy = StagedCopy { from: 0, to: cache, offset, bytes: count };
            fetch.submit(&[], |numbers| staging.send_with(gpu, &[copy], numbers, |mapped| mapped.write(0, piece)))?;
        }
    }
    staging.finish(gpu)?;
    let filled = taken.min(caches.len());
    for _ in filled..stored {
        for &(_, count) in &pieces {
            reader.read(&mut bytes[..count as usize])?; // of a block that is not loaded
        }
    }
    fetch.check().map(|()| filled)
}

/// The name of a snapshot without a path, for errors.
fn in_memory() -> &'static Path {
    Path::new("a snapshot in memory")
}

/// The number of a type of cache in headers: the bytes of a value of the latent.
pub(super) fn cache_type(ty: CacheType) -> u32 {
    match ty {
        CacheType::Q8_0 => 1,
        CacheType::F16 => 2,
        CacheType::F32 => 4,
    }
}

/// The name of a type of cache in a header.
fn name(cache_type: u32) -> String {
    let found = CacheType::ALL.into_iter().find(|ty| self::cache_type(*ty) == cache_type);
    found.map_or_else(|| format!("number {cache_type}"), |ty| ty.name().to_owned())
}
