//! Buffers: made, filled, read back.

use super::meter::Held;
use super::{Gpu, Submission};
use crate::error::{Error, Result};
use std::sync::Arc;

/// What a buffer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferUse {
    /// Read and written by kernels, filled from and copied to the host.
    Storage,
    /// Small constants of kernels.
    Uniform,
}

/// A buffer on the device, zero-filled when made, or a part of one. Clones and parts share it.
#[derive(Debug, Clone)]
pub struct Buffer {
    pub(super) raw: wgpu::Buffer,
    /// The first byte in `raw`.
    pub(super) start: u64,
    bytes: u64,
    _held: Arc<Held>,
}

impl Buffer {
    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes from `start` on. To be bound, it has to start at a multiple of what the device aligns ranges to.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are not as many.
    pub fn part(&self, start: u64, bytes: u64) -> Result<Self> {
        if start.checked_add(bytes).is_some_and(|end| end <= self.bytes) {
            return Ok(Self { start: self.start + start, bytes, ..self.clone() });
        }
        let (expected, found) = (format!("a part of {} bytes", self.bytes), format!("{bytes} from {start} on"));
        Err(Error::Argument { argument: "part", expected, found })
    }
}

/// A host-visible buffer that results are copied to.
#[derive(Debug)]
pub struct Readback {
    pub(super) raw: wgpu::Buffer,
    _held: Held,
}

impl Gpu {
    /// Makes a buffer of `bytes` bytes, rounded up to whole words.
    ///
    /// # Errors
    /// [`Error::TooLarge`] past the device's limits, [`Error::OutOfMemory`].
    pub fn buffer(&self, label: &str, bytes: u64, usage: BufferUse) -> Result<Buffer> {
        self.fits(label, bytes)?;
        let usage = match usage {
            BufferUse::Storage => wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
            BufferUse::Uniform => wgpu::BufferUsages::UNIFORM,
        };
        let (raw, held) = self.create(label, bytes, usage | wgpu::BufferUsages::COPY_DST, false)?;
        Ok(Buffer { bytes: raw.size(), start: 0, raw, _held: Arc::new(held) })
    }

    /// A buffer of `bytes` bytes that came to be elsewhere.
    #[cfg(target_os = "macos")]
    pub(super) fn holding(&self, raw: wgpu::Buffer, bytes: u64) -> Buffer {
        Buffer { raw, start: 0, bytes, _held: Arc::new(self.shared.meter.hold(bytes)) }
    }

    /// Makes a buffer that up to `bytes` bytes of results are copied to.
    pub fn readback(&self, label: &str, bytes: u64) -> Result<Readback> {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let (raw, held) = self.create(label, bytes, usage, false)?;
        Ok(Readback { raw, _held: held })
    }

    pub(super) fn create(
        &self,
        label: &str,
        bytes: u64,
        usage: wgpu::BufferUsages,
        mapped_at_creation: bool,
    ) -> Result<(wgpu::Buffer, Held)> {
        let size = bytes.max(4).next_multiple_of(4);
        let descriptor = wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation };
        let making = format!("making the buffer `{label}`");
        let raw = self.attempt(&making, size, |device| device.create_buffer(&descriptor))?;
        let held = self.shared.meter.hold(size);
        Ok((raw, held))
    }

    fn fits(&self, label: &str, bytes: u64) -> Result<()> {
        let capabilities = self.capabilities();
        if bytes <= capabilities.max_buffer {
            return Ok(());
        }
        Err(Error::TooLarge {
            tensor: label.into(),
            bytes,
            limit: "max_buffer_size",
            allowed: capabilities.max_buffer,
            remedy: "use a smaller quantisation, a shorter context (-c) or another adapter",
        })
    }

    /// Copies `data`, whole words, to `offset` of the buffer before the next submission runs.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is no room to stage it, [`Error::Gpu`] if it does not fit the buffer.
    pub fn write(&self, buffer: &Buffer, offset: u64, data: &[u8]) -> Result<()> {
        let queue = &self.shared.queue;
        self.attempt("writing to a buffer", data.len() as u64, |_| {
            queue.write_buffer(&buffer.raw, buffer.start + offset, data)
        })
    }

    /// Waits for the submission, then reads the first `bytes` bytes copied to `readback`.
    ///
    /// # Errors
    /// As [`Gpu::read_into`].
    pub fn read(&self, readback: &Readback, bytes: u64, after: &Submission) -> Result<Vec<u8>> {
        let mut data = vec![0; bytes.min(readback.raw.size()) as usize];
        self.read_into(readback, &mut data, after)?;
        Ok(data)
    }

    /// Waits for the submission, and for no later one, then fills `data`, whole words and no longer than
    /// `readback`, with what was copied there.
    ///
    /// # Errors
    /// [`Error::DeviceLost`], [`Error::Gpu`].
    pub fn read_into(&self, readback: &Readback, data: &mut [u8], after: &Submission) -> Result<()> {
        let slice = readback.raw.slice(..data.len() as u64);
        slice.map_async(wgpu::MapMode::Read, |_| {});
        let waited = self.wait(after);
        let refused = |message: String| Error::Gpu { doing: "to read results".into(), message };
        let read = match slice.get_mapped_range() {
            Ok(view) => {
                data.copy_from_slice(&view);
                Ok(())
            }
            Err(error) => Err(refused(error.to_string())),
        };
        readback.raw.unmap();
        waited.and(read)
    }
}
