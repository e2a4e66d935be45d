//! KV rows whose latent is rounded to bytes: blocks of 32 values, each with a scale in f16. The rotary key, which
//! follows, is in f16.
//!
//! A value is byte / 128 - 1 times its block's scale. So a scale is about the largest magnitude of its block, and
//! neither the scale nor a value of moderate size is so small in f16 that drivers flush it to zero. Of every four
//! values the second and third are exchanged, so that two masks turn a word into pairs of f16 in the order in which
//! they are multiplied.

use half::f16;

/// Values of a latent that share a scale.
pub(crate) const BLOCK: usize = 32;
/// The number of bytes that kernels read at a time. Parts of a KV row begin at multiples of it.
const PIECE: usize = 16;
/// The offset of a byte from its number, which is from -127 to 127.
pub(crate) const ZERO: u8 = 128;

/// The layout of such a KV row, for a latent of `rank` values and a rotary key of `rotary`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRow {
    pub(crate) rank: usize,
    pub(crate) rotary: usize,
}

impl BlockRow {
    /// The size in bytes of the KV row: one byte for each value of the latent; two for each value of the rotary key,
    /// which is padded with zeros to a multiple of eight values; two for each block.
    pub(crate) fn bytes(self) -> usize {
        (self.scales() + 2 * self.blocks()).next_multiple_of(PIECE)
    }

    /// The first byte of the rotary key.
    pub(crate) fn keys(self) -> usize {
        self.rank
    }

    /// The first byte of the scales.
    pub(crate) fn scales(self) -> usize {
        self.rank + 2 * self.rotary.next_multiple_of(8)
    }

    fn blocks(self) -> usize {
        self.rank / BLOCK
    }

    /// The byte of value `at` of the latent.
    pub(crate) fn byte(self, at: usize) -> usize {
        at / 4 * 4 + [0, 2, 1, 3][at % 4]
    }

    /// The first byte of the scale of value `at` of the latent.
    pub(crate) fn scale(self, at: usize) -> usize {
        self.scales() + 2 * (at / BLOCK)
    }

    /// The value of a byte with the bits of a scale.
    fn value(byte: u8, scale: u16) -> f64 {
        (f64::from(byte) - f64::from(ZERO)) / f64::from(ZERO) * f16::from_bits(scale).to_f64()
    }

    /// The KV row of a latent and a rotary key {rank + rotary}.
    pub(crate) fn packed(self, values: &[f32]) -> Vec<u8> {
        let mut row = vec![0; self.bytes()];
        let (latent, key) = values.split_at(self.rank);
        for (block, values) in latent.chunks(BLOCK).enumerate() {
            let top = values.iter().fold(0f32, |top, v| top.max(v.abs()));
            let scale = f16::from_f32((top * (128.0 / 127.0)).min(f16::MAX.to_f32()));
            row[self.scale(block * BLOCK)..][..2].copy_from_slice(&scale.to_le_bytes());
            let inverse = if scale == f16::ZERO { 0.0 } else { 128.0 / scale.to_f32() };
            for (i, value) in values.iter().enumerate() {
                let rounded = (value * inverse).round_ties_even().clamp(-127.0, 127.0);
                row[self.byte(block * BLOCK + i)] = (rounded as i16 + i16::from(ZERO)) as u8;
            }
        }
        for (to, value) in row[self.keys()..].chunks_exact_mut(2).zip(key) {
            to.copy_from_slice(&f16::from_f32(*value).to_le_bytes());
        }
        row
    }

    /// The latent and the rotary key {rank + rotary} of a KV row.
    pub(crate) fn unpacked(self, row: &[u8]) -> Vec<f64> {
        let half = |at: usize| u16::from_le_bytes([row[at], row[at + 1]]);
        let latent = (0..self.rank).map(|at| Self::value(row[self.byte(at)], half(self.scale(at))));
        let key = (0..self.rotary).map(|at| f16::from_bits(half(self.keys() + 2 * at)).to_f64());
        latent.chain(key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_within_half_a_step() {
        for (rank, rotary, bytes) in [(512, 64, 672), (128, 32, 208), (96, 10, 144), (32, 2, 64)] {
            let row = BlockRow { rank, rotary };
            assert_eq!(row.bytes(), bytes);
            // Each block has other magnitudes; one is all zeros.
            let value = |i: usize| ((i * 7919 % 1009) as f32 / 504.5 - 1.0) * [3.0, 1e-3, 0.0, 4e4][i / 32 % 4];
            let values: Vec<f32> = (0..rank + rotary).map(value).collect();
            let found = row.unpacked(&row.packed(&values));
            for (at, block) in values[..rank].chunks(BLOCK).enumerate() {
                let top = block.iter().fold(0f32, |top, v| top.max(v.abs()));
                for (want, got) in block.iter().zip(&found[at * BLOCK..]) {
                    let error = (f64::from(*want) - got).abs();
                    assert!(error <= f64::from(top) * 0.501 / 127.0, "{rank}: {got} for {want}, of up to {top}");
                }
            }
            for (want, got) in values[rank..].iter().zip(&found[rank..]) {
                assert_eq!(f16::from_f32(*want).to_f64(), *got);
            }
        }
    }
}
