//! Buffers read back, and noticed if they were not: where a driver drops work without a word, a copy to the host leaves
//! there what was there before.

use super::{Buffer, Gpu, Readback, ReadbackCopy, Receipts};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

/// Reads parts of buffers, one after another.
pub struct Fetch {
    gpu: Gpu,
    data: Readback,
    receipts: Receipts,
}

/// A part of a buffer: whole words.
#[derive(Clone, Copy)]
pub struct BufferRange<'a> {
    /// The buffer.
    pub from: &'a Buffer,
    /// The first byte.
    pub offset: u64,
    /// The bytes.
    pub bytes: u64,
}

impl Fetch {
    /// For up to `bytes` bytes at a time.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; what the device reports.
    pub fn new(gpu: &Gpu, bytes: u64) -> Result<Self> {
        Ok(Self { gpu: gpu.clone(), data: gpu.readback("data", bytes)?, receipts: Receipts::new(gpu)? })
    }

    /// `bytes` bytes of a buffer, whole words from `offset` on, once all that was submitted before is done.
    ///
    /// # Errors
    /// [`Error::NoResult`] if they never came; what the device reports.
    pub fn read(&mut self, from: &Buffer, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        self.read_pieces(&[BufferRange { from, offset, bytes }])
    }

    /// Pieces of buffers, one behind the other.
    ///
    /// # Errors
    /// As [`Fetch::read`].
    pub fn read_pieces(&mut self, pieces: &[BufferRange<'_>]) -> Result<Vec<u8>> {
        let mut at = 0;
        let mut copies = Vec::with_capacity(pieces.len() + 1);
        for &BufferRange { from, offset, bytes } in pieces {
            copies.push(ReadbackCopy { from, offset, bytes, to: &self.data, at });
            at += bytes;
        }
        copies.push(self.receipts.next(&self.gpu, None)?);
        let copied = self.gpu.submit([], &copies)?;
        drop(copies);
        self.receipts.check(&self.gpu, &copied)?;
        self.gpu.read(&self.data, at, &copied)
    }
}
