//! Staging memory: what the host fills while the GPU copies from others of its kind.
//!
//! A [`Staging`] is mapped when it is made, and again once the GPU has copied what it held; nothing is allocated in
//! between. Several in turn keep both sides busy. Each may be filled on another thread: submissions come one after
//! another, and every thread waits for its own.
//!
//! Mapped memory is for writing only. Where the GPU's own memory is mapped, the processor gathers writes into whole
//! lines on their way over the bus, and a single read would wait for the bus; so bytes are made elsewhere, in a few
//! kilobytes that stay in a core's cache, and copied here in one go.

use super::meter::Held;
use super::{Buffer, Gpu, Submission};
use crate::error::{Error, Result};
use wgpu::{BufferUsages, MapMode};

/// A host-visible buffer whose contents are copied to other buffers.
#[derive(Debug)]
pub struct Staging {
    raw: wgpu::Buffer,
    /// The submission that copies what it held last.
    copied: Option<Submission>,
    _held: Held,
}

/// A copy from staging memory.
#[derive(Debug)]
pub struct StagedCopy<'a> {
    /// The first byte in the staging memory.
    pub from: u64,
    /// The destination.
    pub to: &'a Buffer,
    /// The first byte in the destination.
    pub offset: u64,
    /// Whole words.
    pub bytes: u64,
}

/// Staging memory while the host writes to it.
#[derive(Debug)]
pub struct Mapped {
    view: wgpu::BufferViewMut,
}

impl Mapped {
    /// Writes bytes from `at` on.
    ///
    /// # Errors
    /// [`Error::Gpu`] if they do not fit.
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        self.part(at, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Writes `count` zeros from `at` on.
    ///
    /// # Errors
    /// As [`Mapped::write`].
    pub fn zero(&mut self, at: usize, count: usize) -> Result<()> {
        self.part(at, count)?.fill(0);
        Ok(())
    }

    fn part(&mut self, at: usize, count: usize) -> Result<wgpu::WriteOnly<'_, [u8]>> {
        let length = self.view.len();
        let end = at.checked_add(count).filter(|end| *end <= length);
        let end = end.ok_or_else(|| refused(format!("{count} bytes from {at} on, of {length}")))?;
        Ok(self.view.slice(at..end))
    }
}

impl Staging {
    /// Waits for the memory to be free, lets `fill` write to it, and submits the copies.
    ///
    /// # Errors
    /// That of `fill`, and whatever the driver reports of these copies or of those before.
    pub fn send(
        &mut self,
        gpu: &Gpu,
        copies: &[StagedCopy<'_>],
        fill: impl FnOnce(&mut Mapped) -> Result<()>,
    ) -> Result<()> {
        self.finish(gpu)?;
        let view = self.raw.get_mapped_range_mut(..).or_else(|error| {
            gpu.check()?; // which fails in many ways once it is lost
            Err(refused(error.to_string()))
        })?;
        let mut mapped = Mapped { view };
        let filled = fill(&mut mapped);
        drop(mapped); // wgpu panics where memory is unmapped that someone can still write to
        filled?;
        gpu.attempt("staging data", 0, |_| self.raw.unmap())?;
        let submission = gpu.record("copying staged data", 0, |encoder| {
            for copy in copies {
                let to = copy.to.start + copy.offset;
                encoder.copy_buffer_to_buffer(&self.raw, copy.from, &copy.to.raw, to, copy.bytes);
            }
        })?;
        // Whether it comes to that, `get_mapped_range_mut` tells.
        gpu.attempt("staging data", 0, |_| self.raw.map_async(MapMode::Write, .., |_| {}))?;
        self.copied = Some(submission);
        Ok(())
    }

    /// Waits until everything sent is where it should be.
    ///
    /// # Errors
    /// [`Error::DeviceLost`], or whatever else the driver reports.
    pub fn finish(&mut self, gpu: &Gpu) -> Result<()> {
        self.copied.take().map_or(Ok(()), |copied| gpu.wait(&copied))
    }
}

fn refused(message: String) -> Error {
    Error::Gpu { doing: "staging data".into(), message }
}

impl Gpu {
    /// Makes staging memory of `bytes` bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn staging(&self, bytes: u64) -> Result<Staging> {
        let (raw, held) = self.create("staging", bytes, BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC, true)?;
        Ok(Staging { raw, copied: None, _held: held })
    }
}
