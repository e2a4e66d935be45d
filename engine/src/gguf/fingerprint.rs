//! Tells one file from another.

use super::Gguf;
use sha2::{Digest, Sha256};

impl Gguf {
    /// A number that identifies the file: two files with different headers or different `weights` have the same number
    /// with a probability of 1 in 2³². `weights` are checksums of all tensors as they are on the GPU.
    pub fn fingerprint(&self, weights: &[u8]) -> u64 {
        u64::from(crc32fast::hash(self.first().header_bytes())) << 32 | u64::from(crc32fast::hash(weights))
    }

    /// The same as the SHA-256 of the header and the checksums of all tensors.
    pub fn digest(&self, weights: &[u8]) -> [u64; 4] {
        let digest = Sha256::new().chain_update(self.first().header_bytes()).chain_update(weights).finalize();
        let mut numbers = [0; 4];
        bytemuck::bytes_of_mut(&mut numbers).copy_from_slice(&digest);
        numbers
    }
}
