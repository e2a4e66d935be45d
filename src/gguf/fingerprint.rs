//! What tells one file from another.

use super::Gguf;

impl Gguf {
    /// A number that files do not share, but by a chance of 1 in 2³², if their headers differ or what `weights` is: sums
    /// of what was made of all their tensors.
    pub fn fingerprint(&self, weights: &[u8]) -> u64 {
        u64::from(crc32fast::hash(self.first().header_bytes())) << 32 | u64::from(crc32fast::hash(weights))
    }
}
