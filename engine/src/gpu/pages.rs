//! Buffers over pages of a file. If the GPU shares the system's memory, they are the pages themselves.
//!
//! Only Metal lets wgpu use them directly (`metal.rs`). On other systems, and if Metal refuses, the pages are copied
//! unchanged. So on every system many weights share one buffer, at offsets that the file decides, and every system
//! tests this.

use super::{Buffer, BufferUse, Gpu, StagedCopy};
use crate::error::Result;
use crate::gguf::Gguf;
use crate::memory::zeros;
use std::ops::Range;

/// The alignment of buffers over a file: the page size of Apple's systems in bytes.
pub const PAGE: usize = 16 << 10;
/// The number of bytes that are copied at a time.
const COPIED: usize = 8 << 20;

impl Gpu {
    /// Whether the device can use the pages of a mapped file directly.
    pub fn shares_pages(&self) -> bool {
        #[cfg(target_os = "macos")]
        return super::metal::unified(self.device());
        #[cfg(not(target_os = "macos"))]
        false
    }

    /// Creates a buffer over bytes of a file, or of the first of several files. The range starts and ends at multiples
    /// of [`PAGE`]; its last page may reach past the end of the file. The map of the file lives as long as the buffer
    /// and the work that uses it. Nothing may write to it.
    ///
    /// # Errors
    /// The errors of [`Gpu::buffer`]; [`Error::Io`](crate::Error::Io) if the file cannot be read.
    #[doc(hidden)]
    pub fn over_file(&self, label: &str, file: &Gguf, pages: Range<usize>) -> Result<Buffer> {
        #[cfg(target_os = "macos")]
        if let Some(buffer) = self.shared_buffer(label, file, pages.clone())? {
            return Ok(buffer);
        }
        self.copied_buffer(label, file, pages)
    }

    #[cfg(target_os = "macos")]
    fn shared_buffer(&self, label: &str, file: &Gguf, pages: Range<usize>) -> Result<Option<Buffer>> {
        let bytes = pages.len() as u64;
        if !self.shares_pages() || bytes > self.capabilities().max_buffer {
            return Ok(None);
        }
        let using = format!("using the file for `{label}`");
        self.holding(&using, bytes, |device| super::metal::wrap(device, label, file, pages))
    }

    fn copied_buffer(&self, label: &str, file: &Gguf, pages: Range<usize>) -> Result<Buffer> {
        let buffer = self.buffer(label, pages.len() as u64, BufferUse::Storage)?;
        let end = pages.end.min(file.first_bytes());
        let mut content = zeros(end.saturating_sub(pages.start).min(COPIED), "copying a file's pages")?;
        let mut staging = self.staging(content.len().next_multiple_of(4) as u64)?;
        for (start, offset) in (pages.start..end).step_by(COPIED).zip((0..).step_by(COPIED)) {
            let part = &mut content[..(end - start).min(COPIED)];
            file.read_first(start, part)?;
            let bytes = part.len().next_multiple_of(4);
            let copy = StagedCopy { from: 0, to: &buffer, offset, bytes: bytes as u64 };
            staging.send(self, &[copy], |mapped| {
                mapped.write(0, part)?;
                mapped.zero(part.len(), bytes - part.len())
            })?;
        }
        staging.finish(self)?;
        Ok(buffer)
    }
}
