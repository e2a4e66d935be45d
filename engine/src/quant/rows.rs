//! Operations on whole rows of any format: their sizes in the file and on the GPU, decoding, repacking.
//!
//! Lengths are checked here, once for many rows, so that the loops over blocks need no checks.

use super::{Family, GROUP, Quant};
use crate::error::{Error, Result};

impl Quant {
    /// The size in bytes of a row of `cols` values in the file. `None` if there can be no such row: it is empty, ends
    /// inside a block, or has more bytes than can be counted.
    pub fn row_bytes(&self, cols: usize) -> Option<usize> {
        let possible = cols > 0 && (self.ragged || cols.is_multiple_of(self.values));
        // The product is a multiple of `values` for float formats too, since each value has bytes of its own.
        cols.checked_mul(self.bytes).filter(|_| possible).map(|bytes| bytes / self.values)
    }

    /// The number of groups of a row of `cols` values on the GPU.
    pub fn groups(&self, cols: usize) -> usize {
        cols.div_ceil(GROUP)
    }

    /// The number of blocks of a row of `cols` values on the GPU.
    pub fn blocks(&self, cols: usize) -> usize {
        cols.div_ceil(self.values)
    }

    /// The size in bytes of stream `i` for `blocks` blocks.
    pub fn stream_bytes(&self, i: usize, blocks: usize) -> usize {
        self.streams[i].bytes * blocks
    }

    /// The size in bytes of all streams for `blocks` blocks.
    pub fn gpu_bytes(&self, blocks: usize) -> usize {
        self.streams.iter().map(|stream| stream.bytes * blocks).sum()
    }

    /// Decodes one row, or several consecutive ones, into exactly `out.len()` values.
    pub fn decode(&self, bytes: &[u8], out: &mut [f32]) -> Result<()> {
        self.check_bytes("bytes", self.checked_row_bytes("out", out.len())?, bytes.len())?;
        (self.codec.decode)(bytes, out);
        Ok(())
    }

    /// Repacks rows of `cols` values for the GPU: `out[i]` gets [`stream_bytes`](Self::stream_bytes) of *rows* ·
    /// [`blocks`](Self::blocks) blocks. A large tensor can be repacked in runs of rows, by several threads.
    pub fn repack(&self, rows: &[u8], cols: usize, out: &mut [&mut [u8]]) -> Result<()> {
        let row_bytes = self.checked_row_bytes("cols", cols)?;
        let count = rows.len() / row_bytes;
        self.check_bytes("rows", count * row_bytes, rows.len())?;
        self.check_streams(count * self.blocks(cols), out)?;
        if cols.is_multiple_of(self.values) {
            (self.codec.repack)(rows, out);
        } else {
            copy_padded(rows, row_bytes, out[0], self.stream_bytes(0, self.blocks(cols)));
        }
        Ok(())
    }

    /// Whether rows of `cols` values have the same bytes on the GPU as in the file, which holds for float formats,
    /// unless a row needs padding.
    pub fn same_on_gpu(&self, cols: usize) -> bool {
        self.family == Family::Plain && cols > 0 && cols.is_multiple_of(self.values)
    }

    /// The float format that represents this format's values exactly.
    pub fn exact(&self) -> &'static Quant {
        if self.id == super::F16.id { &super::F16 } else { &super::F32 }
    }

    /// Encodes values in one of the formats that [`exact`](Self::exact) returns.
    pub fn encode(&self, values: &[f32]) -> Result<Vec<u8>> {
        match self.id {
            id if id == super::F16.id => {
                Ok(values.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect())
            }
            id if id == super::F32.id => Ok(values.iter().flat_map(|v| v.to_le_bytes()).collect()),
            _ => Err(Error::argument("format", "f32 or f16", format!("{}, which can only be decoded", self.name))),
        }
    }

    fn checked_row_bytes(&self, argument: &'static str, cols: usize) -> Result<usize> {
        self.row_bytes(cols).ok_or_else(|| {
            Error::argument(
                argument,
                format!("rows of {}, in whole blocks of {} values", self.name, self.values),
                format!("{cols} values"),
            )
        })
    }

    fn check_bytes(&self, argument: &'static str, expected: usize, found: usize) -> Result<()> {
        if found == expected {
            return Ok(());
        }
        Err(Error::argument(argument, format!("{expected} bytes of {}", self.name), format!("{found} bytes")))
    }

    fn check_streams(&self, blocks: usize, out: &[&mut [u8]]) -> Result<()> {
        if out.len() != self.streams.len() {
            let (expected, found) =
                (format!("the {} streams of {}", self.streams.len(), self.name), out.len().to_string());
            return Err(Error::argument("out", expected, found));
        }
        for (stream, bytes) in self.streams.iter().zip(out) {
            self.check_bytes(stream.name, stream.bytes * blocks, bytes.len())?;
        }
        Ok(())
    }
}

/// Copies rows of `from` bytes into rows of `to` bytes, and fills the rest of each with zeros.
fn copy_padded(rows: &[u8], from: usize, out: &mut [u8], to: usize) {
    for (row, padded) in rows.chunks_exact(from).zip(out.chunks_exact_mut(to)) {
        let (values, padding) = padded.split_at_mut(from);
        values.copy_from_slice(row);
        padding.fill(0);
    }
}
