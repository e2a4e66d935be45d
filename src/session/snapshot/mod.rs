//! Sessions kept beyond the program that made them.
//!
//! A snapshot holds the tokens, what the cache holds of them, and the logits of the last one, so that a session goes on
//! from it bit by bit as the one it was taken of would. It is good for sessions of the same file and the same type of
//! cache, with room for its tokens, on any device. What tells a file from others is its header and the sums of its weights
//! as the GPU has them, which are alike on every device; a version of wglm that lays weights out otherwise would refuse
//! what older ones wrote.

mod file;
mod format;

use super::run::Next;
use super::{LastOutput, Session};
use crate::error::{Error, Result};
use crate::gpu::{Buffer, Fetch, StagedCopy};
use crate::plan::PAGE;
use format::{Header, PIECE, Reader, Writer, damaged};
use std::io::{Cursor, Read, Seek, Write};
use std::path::Path;

impl Session {
    /// The session as bytes: what the cache holds of its tokens, and not the room for more.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is no room to read the cache; [`Error::NoResult`] if it never came; what the
    /// device reports.
    pub fn snapshot(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.write_snapshot(&mut bytes, in_memory())?;
        Ok(bytes)
    }

    /// Makes the session what it was when a snapshot was taken, of this session or of another. How tokens are chosen
    /// stays as it is.
    ///
    /// # Errors
    /// [`Error::Snapshot`] for bytes that are damaged, or are of another file or another type of cache,
    /// [`Error::ContextFull`] for more tokens than the session has room for, [`Error::TokenOutOfRange`] for one that is
    /// none: after these the session is as it was. [`Error::NoResult`] if the cache never took what it was given, and
    /// what the device reports: after that it is empty.
    pub fn restore(&mut self, snapshot: &[u8]) -> Result<()> {
        self.read_snapshot(Cursor::new(snapshot), in_memory())
    }

    /// The header of a snapshot of `tokens` tokens with `logits` logits.
    fn header(&self, tokens: usize, logits: usize) -> Header {
        let cache = self.planned.cache;
        let (layers, kv_row) = (self.caches().count(), self.caches().map(|cache| cache.bytes()).next().unwrap_or(0));
        let shape =
            [cache.ty.bytes() as u32, layers as u32, (kv_row / cache.context.next_multiple_of(PAGE) as u64) as u32];
        Header::new(shape, self.model.fingerprint(), tokens as u32, logits as u32)
    }

    /// The caches, layer by layer.
    pub(super) fn caches(&self) -> impl Iterator<Item = &Buffer> {
        self.planned.plan.caches().map(|index| self.executor.local(index))
    }

    fn write_snapshot(&mut self, to: &mut dyn Write, path: &Path) -> Result<()> {
        let logits = if self.output.is_some() { self.logits()? } else { Vec::new() };
        self.take(self.submissions.place)?; // no work that the cache depends on was lost
        let header = self.header(self.tokens.len(), logits.len());
        let mut writer = Writer::new(to, path);
        writer.write(bytemuck::bytes_of(&header))?;
        writer.write(bytemuck::cast_slice(&self.tokens))?;
        let layer = header.layer_bytes();
        let mut fetch = Fetch::new(self.executor.gpu(), layer.min(PIECE as u64))?;
        for cache in self.caches() {
            for (offset, bytes) in pieces(layer) {
                writer.write(&fetch.read(cache, offset, bytes)?)?;
            }
        }
        writer.write(bytemuck::cast_slice(&logits))?;
        writer.finish()
    }

    fn read_snapshot(&mut self, from: impl Read + Seek, path: &Path) -> Result<()> {
        let mut reader = Reader::open(from, path)?;
        let header = reader.header;
        self.expect(&header)?;
        let tokens = reader.words(header.tokens)?;
        self.check(0, &tokens)?;
        self.rewind(0);
        self.fill_caches(&mut reader)?;
        let logits = reader.words(header.logits)?;
        self.tokens = tokens;
        self.confirmed = self.tokens.len();
        if logits.is_empty() {
            return Ok(());
        }
        self.output = Some(LastOutput::Logits);
        let local = self.executor.local(self.planned.logits);
        let written = self.executor.gpu().write(local, 0, bytemuck::cast_slice(&logits));
        written.and_then(|()| self.run(Next::Sampling)).inspect_err(|_| self.rewind(0))
    }

    /// Whether a snapshot's header is that of one of this session's.
    fn expect(&self, header: &Header) -> Result<()> {
        let (own, vocab) = (self.header(0, 0), self.model.config().vocab);
        if header.value_bytes != own.value_bytes {
            let of = |header: &Header| format!("values of {} bytes", header.value_bytes);
            return Err(damaged("its type of cache", of(&own), of(header)));
        }
        if (header.model, header.layers, header.kv_row) != (own.model, own.layers, own.kv_row) {
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

    fn fill_caches(&self, reader: &mut Reader<'_, impl Read + Seek>) -> Result<()> {
        let (gpu, layer) = (self.executor.gpu(), reader.header.layer_bytes());
        let mut bytes = vec![0; layer.min(PIECE as u64) as usize];
        let mut staging = gpu.staging(bytes.len() as u64)?;
        for cache in self.caches() {
            for (offset, count) in pieces(layer) {
                let piece = &mut bytes[..count as usize];
                reader.read(piece)?;
                let copy = StagedCopy { from: 0, to: cache, offset, bytes: count };
                staging.send(gpu, &[copy], |mapped| mapped.write(0, piece))?;
            }
        }
        staging.finish(gpu)?;
        // What comes last came after all the rest.
        let last = self.caches().last().filter(|_| layer > 0);
        last.map_or(Ok(()), |cache| Fetch::new(gpu, 4)?.read(cache, layer - 4, 4).map(drop))
    }
}

/// Of so many bytes, where each piece starts and how many it has.
fn pieces(bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..bytes).step_by(PIECE).map(move |start| (start, (bytes - start).min(PIECE as u64)))
}

/// What stands for a path where there is none.
fn in_memory() -> &'static Path {
    Path::new("a snapshot in memory")
}
