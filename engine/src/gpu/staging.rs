//! Staging memory, which the host fills while the GPU copies from other staging memory.
//!
//! A [`Staging`] is mapped when it is created, and again each time the GPU has copied its contents; nothing is
//! allocated in between. With several of them, both the host and the GPU stay busy. Each can be filled by a different
//! thread: submissions are serialized, and every thread waits for its own.
//!
//! Mapped memory must only be written. If it is GPU memory, the processor combines writes into whole cache lines before
//! they cross the bus, and a single read would wait for the bus. Bytes are therefore computed elsewhere, in a few
//! kilobytes that stay in a core's cache, and copied here at once.

use super::meter::HeldMemory;
use super::{Buffer, Gpu, ReadbackCopy, Submission};
use crate::error::{Error, Result};
use wgpu::{BufferUsages, MapMode};

/// A host-visible buffer whose contents are copied to other buffers.
#[derive(Debug)]
pub struct Staging {
    raw: wgpu::Buffer,
    /// The submission that copies the previous contents.
    copied: Option<Submission>,
    _held: HeldMemory,
}

/// A copy from staging memory.
#[derive(Debug)]
pub struct StagedCopy<'a> {
    /// The position of the first byte in the staging memory.
    pub from: u64,
    /// The destination.
    pub to: &'a Buffer,
    /// The position of the first byte in the destination.
    pub offset: u64,
    /// The number of bytes, in whole words.
    pub bytes: u64,
}

/// Staging memory while the host writes to it.
#[derive(Debug)]
pub struct Mapped {
    view: wgpu::BufferViewMut,
}

impl Mapped {
    /// Writes bytes at position `at`.
    ///
    /// # Errors
    /// [`Error::Gpu`] if they do not fit.
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        self.part(at, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Writes `count` zeros at position `at`.
    ///
    /// # Errors
    /// The errors of [`Mapped::write`].
    pub fn zero(&mut self, at: usize, count: usize) -> Result<()> {
        self.part(at, count)?.fill(0);
        Ok(())
    }

    fn part(&mut self, at: usize, count: usize) -> Result<wgpu::WriteOnly<'_, [u8]>> {
        let length = self.view.len();
        let end = at.checked_add(count).filter(|end| *end <= length);
        let end = end.ok_or_else(|| refused(format!("{count} bytes at {at} do not fit into {length}")))?;
        Ok(self.view.slice(at..end))
    }
}

impl Staging {
    /// Waits until the memory is free, lets `fill` write to it, and submits the copies.
    ///
    /// # Errors
    /// The error of `fill`, and those that the driver reports for these copies or earlier ones.
    pub fn send(
        &mut self,
        gpu: &Gpu,
        copies: &[StagedCopy<'_>],
        fill: impl FnOnce(&mut Mapped) -> Result<()>,
    ) -> Result<()> {
        self.send_with(gpu, copies, &[], fill).map(drop)
    }

    /// Like [`Staging::send`]. The submission ends with copies to the host, which show whether it was executed: see
    /// [`Fetch::submit`](super::Fetch::submit).
    ///
    /// # Errors
    /// See [`Staging::send`].
    pub fn send_with(
        &mut self,
        gpu: &Gpu,
        copies: &[StagedCopy<'_>],
        results: &[ReadbackCopy<'_>],
        fill: impl FnOnce(&mut Mapped) -> Result<()>,
    ) -> Result<Submission> {
        self.finish(gpu)?;
        let view = self.raw.get_mapped_range_mut(..).or_else(|error| {
            gpu.check()?; // a lost device fails in many ways, so the loss is reported first
            Err(refused(error.to_string()))
        })?;
        let mut mapped = Mapped { view };
        let filled = fill(&mut mapped);
        drop(mapped); // wgpu panics if memory is unmapped while it can still be written
        filled?;
        gpu.attempt("staging data", 0, |_| self.raw.unmap())?;
        let submission = gpu.record("copying staged data", 0, |encoder| {
            for copy in copies {
                let to = copy.to.start + copy.offset;
                encoder.copy_buffer_to_buffer(&self.raw, copy.from, &copy.to.raw, to, copy.bytes);
            }
            for copy in results {
                let (from, start) = (&copy.from.raw, copy.from.start + copy.offset);
                encoder.copy_buffer_to_buffer(from, start, &copy.to.raw, copy.at, copy.bytes);
            }
        })?;
        // A failure shows in `get_mapped_range_mut`.
        gpu.attempt("staging data", 0, |_| self.raw.map_async(MapMode::Write, .., |_| {}))?;
        Ok(self.copied.insert(submission).clone()) // each thread waits for its own
    }

    /// Waits until all copies are done.
    ///
    /// # Errors
    /// [`Error::DeviceLost`], or other errors that the driver reports.
    pub fn finish(&mut self, gpu: &Gpu) -> Result<()> {
        self.copied.take().map_or(Ok(()), |copied| gpu.wait(&copied))
    }
}

fn refused(message: String) -> Error {
    Error::Gpu { doing: "staging data".into(), message }
}

impl Gpu {
    /// Creates staging memory of `bytes` bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is no memory for it.
    #[doc(hidden)]
    pub fn staging(&self, bytes: u64) -> Result<Staging> {
        let (raw, held) = self.create("staging", bytes, BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC, true)?;
        Ok(Staging { raw, copied: None, _held: held })
    }
}
