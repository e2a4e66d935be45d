//! Tells one file from another.

use super::Gguf;

impl Gguf {
    /// A number that identifies the file: two files with different headers or different `weights` have the same number
    /// with a probability of 1 in 2³². `weights` are checksums of all tensors as they are on the GPU.
    pub fn fingerprint(&self, weights: &[u8]) -> u64 {
        u64::from(crc32fast::hash(self.first().header_bytes())) << 32 | u64::from(crc32fast::hash(weights))
    }
}
