//! Creates buffers, fills them and reads them back.

use super::meter::HeldMemory;
use super::{Gpu, Submission};
use crate::error::{Error, Result};
use std::sync::Arc;

/// The use of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferUse {
    /// Kernels read and write the buffer; the host fills it and copies it back.
    Storage,
    /// The buffer holds small constants of kernels.
    Uniform,
}

/// A buffer on the device, or a part of one. It is filled with zeros when it is created. Clones and parts share it.
#[derive(Debug, Clone)]
pub struct Buffer {
    pub(super) raw: wgpu::Buffer,
    /// The first byte in `raw`.
    pub(super) start: u64,
    bytes: u64,
    _held: Arc<HeldMemory>,
}

impl Buffer {
    /// The length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A part of the buffer that begins at byte `start`. To be bound, it must begin at a multiple of the device's
    /// alignment.
    ///
    /// # Errors
    /// [`Error::Argument`] if the buffer is too short.
    pub fn part(&self, start: u64, bytes: u64) -> Result<Self> {
        if start.checked_add(bytes).is_some_and(|end| end <= self.bytes) {
            return Ok(Self { start: self.start + start, bytes, ..self.clone() });
        }
        Err(Error::argument(
            "part",
            format!("a range within {} bytes", self.bytes),
            format!("{bytes} bytes at {start}"),
        ))
    }
}

/// A host-visible buffer to which results are copied.
#[derive(Debug)]
pub struct Readback {
    pub(super) raw: wgpu::Buffer,
    _held: HeldMemory,
}

impl Gpu {
    /// Creates a buffer of `bytes` bytes, rounded up to whole words.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if it exceeds the device's limits, [`Error::OutOfMemory`] if there is no memory for it.
    #[doc(hidden)]
    pub fn buffer(&self, label: &str, bytes: u64, usage: BufferUse) -> Result<Buffer> {
        self.fits(label, bytes)?;
        let usage = match usage {
            BufferUse::Storage => wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
            BufferUse::Uniform => wgpu::BufferUsages::UNIFORM,
        };
        let (raw, held) = self.create(label, bytes, usage | wgpu::BufferUsages::COPY_DST, false)?;
        Ok(Buffer { bytes: raw.size(), start: 0, raw, _held: Arc::new(held) })
    }

    /// Registers a buffer of `bytes` bytes that was created elsewhere.
    #[cfg(target_os = "macos")]
    pub(super) fn holding(
        &self,
        doing: &str,
        bytes: u64,
        make: impl FnOnce(&wgpu::Device) -> Option<wgpu::Buffer>,
    ) -> Result<Option<Buffer>> {
        let held = self.hold(doing, bytes)?;
        let raw = self.attempt(doing, bytes, make)?;
        Ok(raw.map(|raw| Buffer { raw, start: 0, bytes, _held: Arc::new(held) }))
    }

    /// Counts bytes that are about to be allocated.
    fn hold(&self, doing: &str, bytes: u64) -> Result<HeldMemory> {
        self.shared.meter.hold(bytes).ok_or_else(|| Error::OutOfMemory { doing: doing.into(), bytes })
    }

    /// Creates a buffer to which up to `bytes` bytes of results can be copied.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; any error from the device.
    #[doc(hidden)]
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
    ) -> Result<(wgpu::Buffer, HeldMemory)> {
        let size = bytes.max(4).checked_next_multiple_of(4).unwrap_or(u64::MAX - 3);
        let descriptor = wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation };
        let making = format!("making the buffer `{label}`");
        let held = self.hold(&making, size)?;
        let raw = self.attempt(&making, size, |device| device.create_buffer(&descriptor))?;
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
            remedy: "use a smaller quantization, a smaller context or another GPU",
        })
    }

    /// Copies `data`, in whole words, to `offset` of the buffer before the next submission runs.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is no memory to stage it, [`Error::Gpu`] if it does not fit the buffer.
    #[doc(hidden)]
    pub fn write(&self, buffer: &Buffer, offset: u64, data: &[u8]) -> Result<()> {
        let Some(size) = wgpu::BufferSize::new(data.len() as u64) else { return Ok(()) };
        self.count_write();
        let written = self.attempt("writing to a buffer", size.get(), |_| {
            let view = self.shared.queue.write_buffer_with(&buffer.raw, buffer.start + offset, size);
            view.map(|mut view| view.copy_from_slice(data))
        })?;
        // A lost device ignores the write without an error.
        written.ok_or_else(|| self.lost("it accepts no more data"))
    }

    /// Waits for the submission, then reads the first `bytes` bytes that were copied to `readback`.
    ///
    /// # Errors
    /// The errors of [`Gpu::read_into`].
    #[doc(hidden)]
    pub fn read(&self, readback: &Readback, bytes: u64, after: &Submission) -> Result<Vec<u8>> {
        let mut data = vec![0; bytes.min(readback.raw.size()) as usize];
        self.read_into(readback, &mut data, after)?;
        Ok(data)
    }

    /// Waits for the submission, and for no later one, then fills `data` with what was copied to `readback`. `data`
    /// must be whole words, and no longer than `readback`.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] and [`Error::Gpu`] from the device; [`Error::Argument`] if `data` is longer than
    /// `readback`.
    #[doc(hidden)]
    pub fn read_into(&self, readback: &Readback, data: &mut [u8], after: &Submission) -> Result<()> {
        if data.len() as u64 > readback.raw.size() {
            let (expected, found) = (format!("at most {} bytes", readback.raw.size()), format!("{} bytes", data.len()));
            return Err(Error::argument("data", expected, found));
        }
        self.count_read();
        let slice = readback.raw.slice(..data.len() as u64);
        let mapped = self.attempt("reading results", 0, |_| slice.map_async(wgpu::MapMode::Read, |_| {}));
        let waited = mapped.and_then(|()| self.wait(after));
        let read = slice.get_mapped_range().map(|view| data.copy_from_slice(&view));
        let unmapped = self.attempt("reading results", 0, |_| readback.raw.unmap());
        waited?;
        if let Err(error) = read {
            self.check()?;
            return Err(Error::Gpu { doing: "reading results".into(), message: error.to_string() });
        }
        unmapped
    }
}
