//! Random weights: valid blocks of any format, for tests of kernels and for models without weights.
//!
//! Every bit of the quants and of the scales inside a superblock is random, so that tests detect a kernel that drops or
//! misplaces one. Only the f16 scales are chosen, so that all values are finite and moderate.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::Quant;

impl Quant {
    /// Random blocks of at least `values` values: exactly as many if rows may have any length, and otherwise whole
    /// blocks. The values of a block have a mean of about zero and a standard deviation between 0.25 and 0.75, which
    /// differs between blocks. The same seed gives the same bytes everywhere.
    pub fn sample(&self, values: usize, seed: u64) -> Vec<u8> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut bytes = vec![0; values.div_ceil(self.values) * self.bytes];
        rng.fill_bytes(&mut bytes);
        for block in bytes.chunks_exact_mut(self.bytes) {
            (self.codec.tame)(block, spread(rng.next_u32()));
        }
        if self.ragged {
            bytes.truncate(values * self.bytes / self.values);
        }
        bytes
    }

    /// Fills `bytes` with whole blocks of values with a mean of about zero and a standard deviation of `deviation`. The
    /// product of such a matrix and a vector of deviation *s* has the deviation *s* · `deviation` · √columns.
    pub fn fill(&self, bytes: &mut [u8], deviation: f32, seed: u64) {
        let whole = bytes.len() / self.bytes * self.bytes;
        Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut bytes[..whole]);
        (self.codec.tame)(&mut bytes[..whole], deviation);
    }
}

/// A random standard deviation from 0.25 to 0.75. Its random sign becomes the sign of the scale.
fn spread(random: u32) -> f32 {
    let magnitude = 0.25 + (random >> 9) as f32 / (1 << 24) as f32;
    if random & 1 == 0 { magnitude } else { -magnitude }
}

/// Maps any float, NaN and infinity included, to one of ±0.125 to ±2 with the same sign, mantissa and last two bits of
/// the exponent, and scales it. The standard deviation before scaling is 0.88.
pub(super) fn moderate(value: f32, spread: f32) -> f32 {
    f32::from_bits(value.to_bits() & 0x81ff_ffff | 0x3e00_0000) * (spread / 0.88)
}
