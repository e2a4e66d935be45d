//! Whether submissions whose results stay on the device were carried out.
//!
//! On Metal one that fails for want of memory leaves nothing, and nobody says so. So each has a receipt: a number that
//! the host writes before it and that it copies back, which the host looks at when it reads what came of them.

use super::{Buffer, BufferUse, Gpu, Readback, ReadbackCopy, Submission};
use crate::error::{Error, Result};

/// Submissions between two looks at most.
const MOST: usize = 256;

/// Receipts of submissions, one after another.
pub struct Receipts {
    number: Buffer,
    told: Readback,
    /// The numbers of the submissions since the last look.
    expected: Vec<u32>,
    newest: u32,
}

impl Receipts {
    /// Bytes that they take.
    pub const BYTES: u64 = 4 + 4 * MOST as u64;

    /// None yet.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; what the device reports.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        let (number, told) =
            (gpu.buffer("receipt", 4, BufferUse::Storage)?, gpu.readback("receipts", 4 * MOST as u64)?);
        Ok(Self { number, told, expected: Vec::with_capacity(MOST), newest: 0 })
    }

    /// The copy for the next submission to end with. `before` is the one before it, to be waited for if there is no
    /// place left.
    ///
    /// # Errors
    /// As [`Receipts::check`].
    pub fn next(&mut self, gpu: &Gpu, before: Option<&Submission>) -> Result<ReadbackCopy<'_>> {
        if self.expected.len() == MOST {
            // Where the one before was waited for already, an empty one will do.
            let before = before.cloned().map_or_else(|| gpu.submit([], &[]), Ok)?;
            self.check(gpu, &before)?;
        }
        self.newest = self.newest.wrapping_add(1);
        gpu.write(&self.number, 0, &self.newest.to_le_bytes())?;
        let at = 4 * self.expected.len() as u64;
        self.expected.push(self.newest);
        Ok(ReadbackCopy { from: &self.number, offset: 0, bytes: 4, to: &self.told, at })
    }

    /// Looks at all that should be there after a submission.
    ///
    /// # Errors
    /// [`Error::NoResult`] if one is missing; what the device reports.
    pub fn check(&mut self, gpu: &Gpu, after: &Submission) -> Result<()> {
        if self.expected.is_empty() {
            return Ok(());
        }
        let told = gpu.read(&self.told, 4 * self.expected.len() as u64, after)?;
        let all = told == bytemuck::cast_slice::<u32, u8>(&self.expected);
        self.forget();
        if all {
            return Ok(());
        }
        gpu.check()?; // a lost device leaves none either
        Err(Error::NoResult)
    }

    /// Looks at none of those before: what they were for is not in the session any more.
    pub fn forget(&mut self) {
        self.expected.clear();
    }
}
