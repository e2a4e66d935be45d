//! Buffers read back, and noticed if they were not.
//!
//! Where a driver drops work without a word, as Metal does where memory runs out, a copy to the host leaves there what
//! was there before. So each has a ticket: a number that the host writes, and that the same submission copies back.

use super::{Buffer, BufferUse, Copy, Gpu, Readback};
use crate::error::{Error, Result};

/// Reads parts of buffers, one after another.
pub struct Fetch {
    gpu: Gpu,
    data: Readback,
    /// The number of the newest read, on the device and on its way back.
    ticket: (Buffer, Readback),
    count: u32,
}

impl Fetch {
    /// For up to `bytes` bytes at a time.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; what the device reports.
    pub fn new(gpu: &Gpu, bytes: u64) -> Result<Self> {
        let ticket = (gpu.buffer("ticket", 4, BufferUse::Storage)?, gpu.readback("ticket", 4)?);
        Ok(Self { gpu: gpu.clone(), data: gpu.readback("data", bytes)?, ticket, count: 0 })
    }

    /// `bytes` bytes of a buffer, whole words from `offset` on, once all that was submitted before is done.
    ///
    /// # Errors
    /// [`Error::NoResult`] if they never came; what the device reports.
    pub fn read(&mut self, from: &Buffer, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        let (gpu, (ticket, told)) = (&self.gpu, &self.ticket);
        self.count += 1;
        gpu.write(ticket, 0, &self.count.to_le_bytes())?;
        let data = Copy { from, offset, bytes, to: &self.data, at: 0 };
        let number = Copy { from: ticket, offset: 0, bytes: 4, to: told, at: 0 };
        let copied = gpu.submit([], &[data, number])?;
        let data = gpu.read(&self.data, bytes, &copied)?;
        if gpu.read(told, 4, &copied)? == self.count.to_le_bytes() {
            return Ok(data);
        }
        gpu.check()?; // a lost device leaves no result either
        Err(Error::NoResult)
    }
}
