//! Results that are copied to the host, and the detection of lost ones.
//!
//! On Metal a command buffer may fail while it runs, usually because memory runs out. It then writes nothing, and no
//! error is reported: the host would read the result of an earlier submission. So submissions have numbers. The host
//! writes a number to the device, and the submission copies it back after its work, next to its result. If the host
//! reads another number there, the submission was lost for whatever reason. `gpu/dead.rs` then finds out whether the
//! device is lost too.

use super::{Buffer, BufferUse, Gpu, Readback, ReadbackCopy, Submission};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

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

/// The number of a submission, and the buffer on the device to which the host has written it.
#[derive(Clone, Copy)]
pub struct SubmissionNumber<'a> {
    /// The number.
    pub value: u32,
    /// The buffer.
    pub buffer: &'a Buffer,
    /// Its first byte there.
    pub offset: u64,
}

/// A host-visible buffer for the result of a submission, and for the numbers of this and earlier submissions.
pub struct Results {
    /// The numbers, followed by the result.
    data: Readback,
    capacity: usize,
    /// The numbers of the submissions since the last read.
    expected: Vec<u32>,
    newest: Option<Submission>,
}

impl Results {
    /// How many submissions' numbers the buffers of a session hold.
    pub const CAPACITY: usize = 256;

    /// A buffer for results of up to `bytes` bytes and for the numbers of `capacity` submissions.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; any error from the device.
    pub fn new(gpu: &Gpu, bytes: u64, capacity: usize) -> Result<Self> {
        let data = gpu.readback("results", Self::memory(bytes, capacity))?;
        Ok(Self { data, capacity, expected: Vec::with_capacity(capacity), newest: None })
    }

    /// The size in bytes of such a buffer.
    pub const fn memory(bytes: u64, capacity: usize) -> u64 {
        4 * capacity as u64 + bytes
    }

    /// Calls `submit` with the copies that a submission must end with: of its number and of the ranges, one after the
    /// other. If the buffer can hold no more numbers, the earlier submissions are checked first.
    ///
    /// # Errors
    /// The errors of `submit` and of [`Results::read`].
    pub fn submit(
        &mut self,
        gpu: &Gpu,
        number: SubmissionNumber<'_>,
        ranges: &[BufferRange<'_>],
        submit: impl FnOnce(&[ReadbackCopy<'_>]) -> Result<Submission>,
    ) -> Result<Submission> {
        if self.expected.len() == self.capacity {
            self.read(gpu, 0)?;
        }
        let submission = submit(&self.copies(number, self.expected.len(), ranges))?;
        self.expected.push(number.value);
        Ok(self.newest.insert(submission).clone())
    }

    /// The copies that the first submission since a read must end with: for work that is recorded ahead.
    pub fn first_copies<'a>(
        &'a self,
        number: SubmissionNumber<'a>,
        ranges: &[BufferRange<'a>],
    ) -> Vec<ReadbackCopy<'a>> {
        self.copies(number, 0, ranges)
    }

    /// Submits work that was recorded with [those copies](Results::first_copies), if it is the first since a read.
    ///
    /// # Errors
    /// The error of `submit`.
    pub fn submit_first(
        &mut self,
        number: u32,
        submit: impl FnOnce() -> Result<Submission>,
    ) -> Result<Option<Submission>> {
        if !self.expected.is_empty() {
            return Ok(None);
        }
        let submission = submit()?;
        self.expected.push(number);
        Ok(Some(self.newest.insert(submission).clone()))
    }

    /// Copies a submission's number, to this index, and ranges, one after the other.
    fn copies<'a>(
        &'a self,
        number: SubmissionNumber<'a>,
        index: usize,
        ranges: &[BufferRange<'a>],
    ) -> Vec<ReadbackCopy<'a>> {
        let (to, SubmissionNumber { buffer, offset, .. }) = (&self.data, number);
        let mut copies = vec![ReadbackCopy { from: buffer, offset, bytes: 4, to, at: 4 * index as u64 }];
        let mut at = 4 * self.capacity as u64;
        for &BufferRange { from, offset, bytes } in ranges {
            copies.push(ReadbackCopy { from, offset, bytes, to, at });
            at += bytes;
        }
        copies
    }

    /// Waits for the newest submission to this buffer, and no other, and returns the first `bytes` bytes of its result.
    ///
    /// # Errors
    /// [`Error::NoResult`] if a submission since the last read was lost; [`Error::DeviceLost`] if the device then does
    /// no work at all; any error from the device.
    pub fn read(&mut self, gpu: &Gpu, bytes: u64) -> Result<Vec<u8>> {
        if self.newest.is_none() {
            return Ok(vec![0; bytes as usize]); // nothing was submitted
        }
        match self.arrived(gpu, bytes)? {
            Some(result) => Ok(result),
            None => {
                gpu.check()?; // a lost device leaves no result either
                Err(gpu.result_missing())
            }
        }
    }

    /// Like [`Results::read`], but `None` if a submission since the last read was lost.
    fn arrived(&mut self, gpu: &Gpu, bytes: u64) -> Result<Option<Vec<u8>>> {
        let Some(newest) = &self.newest else { return Ok(None) };
        let mut numbers = gpu.read(&self.data, Self::memory(bytes, self.capacity), newest)?;
        let result = numbers.split_off(4 * self.capacity);
        let whole = numbers.starts_with(bytemuck::cast_slice(&self.expected));
        self.forget();
        Ok(whole.then_some(result))
    }

    /// Forgets the submissions so far without checking them, because their results are not needed.
    pub fn forget(&mut self) {
        self.expected.clear();
    }
}

/// Reads ranges of buffers. It has a buffer of its own for the numbers of its submissions.
pub struct Fetch {
    gpu: Gpu,
    number: Buffer,
    newest: u32,
    results: Results,
}

impl Fetch {
    /// Creates one that reads up to `bytes` bytes at a time.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; any error from the device.
    pub fn new(gpu: &Gpu, bytes: u64) -> Result<Self> {
        Self::with_capacity(gpu, bytes, 1)
    }

    /// Like [`Fetch::new`], for the numbers of up to `capacity` submissions: see [`Fetch::submit`].
    ///
    /// # Errors
    /// See [`Fetch::new`].
    pub fn with_capacity(gpu: &Gpu, bytes: u64, capacity: usize) -> Result<Self> {
        let number = gpu.buffer("submission number", 4, BufferUse::Storage)?;
        Ok(Self { gpu: gpu.clone(), number, newest: 0, results: Results::new(gpu, bytes, capacity)? })
    }

    /// The size in bytes of its buffer.
    pub const fn memory(bytes: u64, capacity: usize) -> u64 {
        4 + Results::memory(bytes, capacity)
    }

    /// Calls `submit` with the copies that the submission must end with. The next read fails if that submission was
    /// lost.
    ///
    /// # Errors
    /// See [`Results::submit`].
    pub fn submit(
        &mut self,
        ranges: &[BufferRange<'_>],
        submit: impl FnOnce(&[ReadbackCopy<'_>]) -> Result<Submission>,
    ) -> Result<Submission> {
        self.newest = self.newest.wrapping_add(1);
        self.gpu.write(&self.number, 0, &self.newest.to_le_bytes())?;
        let number = SubmissionNumber { value: self.newest, buffer: &self.number, offset: 0 };
        self.results.submit(&self.gpu, number, ranges, submit)
    }

    /// Whether a submission that only returns its number succeeds.
    ///
    /// # Errors
    /// Any error from the device.
    pub(super) fn arrives(&mut self) -> Result<bool> {
        let gpu = self.gpu.clone();
        self.submit(&[], |copies| gpu.submit([], copies))?;
        Ok(self.results.arrived(&gpu, 0)?.is_some())
    }

    /// Waits for the submissions so far, and checks that none of them was lost.
    ///
    /// # Errors
    /// [`Error::NoResult`] if one was; any error from the device.
    pub fn check(&mut self) -> Result<()> {
        self.results.read(&self.gpu, 0).map(drop)
    }

    /// Reads `bytes` bytes of a buffer, whole words that begin at `offset`, once all earlier submissions are done.
    ///
    /// # Errors
    /// [`Error::NoResult`] if they did not arrive; any error from the device.
    pub fn read(&mut self, from: &Buffer, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        self.read_ranges(&[BufferRange { from, offset, bytes }])
    }

    /// Reads ranges of buffers, one after the other.
    ///
    /// # Errors
    /// See [`Fetch::read`].
    pub fn read_ranges(&mut self, ranges: &[BufferRange<'_>]) -> Result<Vec<u8>> {
        let gpu = self.gpu.clone();
        self.submit(ranges, |copies| gpu.submit([], copies))?;
        self.results.read(&self.gpu, ranges.iter().map(|range| range.bytes).sum())
    }
}
