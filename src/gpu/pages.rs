//! Buffers over pages of a file: where the GPU shares the system's memory, the pages themselves.
//!
//! Only Metal lets wgpu take them as they are (`metal.rs`); everywhere else, and where Metal refuses, the pages are
//! copied as they lie. So what follows from it, many weights in one buffer at offsets that the file decides, is the same
//! on every system and tested on all of them.

use super::{Buffer, BufferUse, Gpu, StagedCopy};
use crate::error::Result;
use crate::gguf::Gguf;
use crate::memory::zeros;
use std::ops::Range;

/// Buffers over a file start and end at multiples of this: a page of Apple's systems, in bytes.
pub const PAGE: usize = 16 << 10;
/// Bytes copied at a time.
const COPIED: usize = 8 << 20;

impl Gpu {
    /// True if the device can use a mapped file's pages where they lie.
    pub fn shares_pages(&self) -> bool {
        #[cfg(target_os = "macos")]
        return super::metal::unified(self.device());
        #[cfg(not(target_os = "macos"))]
        false
    }

    /// A buffer over bytes of a file, or of the first of several, which start and end at multiples of [`PAGE`]; the last page may reach past the
    /// file's end. The file's memory lives as long as the buffer, and as the work that uses it. No one may write to it.
    ///
    /// # Errors
    /// As [`Gpu::buffer`]; [`Error::Io`](crate::Error::Io).
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
