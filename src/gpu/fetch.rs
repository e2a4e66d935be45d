//! Buffers read back, and noticed if they were not: where a driver drops work without a word, a copy to the host leaves
//! there what was there before.

use super::{Buffer, Copy, Gpu, Readback, Receipts};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

/// Reads parts of buffers, one after another.
pub struct Fetch {
    gpu: Gpu,
    data: Readback,
    receipts: Receipts,
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
        let data = Copy { from, offset, bytes, to: &self.data, at: 0 };
        let copied = self.gpu.submit([], &[data, self.receipts.next(&self.gpu, None)?])?;
        self.receipts.check(&self.gpu, &copied)?;
        self.gpu.read(&self.data, bytes, &copied)
    }
}
