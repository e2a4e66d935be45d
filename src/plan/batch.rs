//! Activations of a chunk of tokens.

use super::{BufferRef, Tensor};

/// f32 activations of a chunk: for each token a stack of vectors, those of all heads, say.
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    /// Where they are.
    pub buffer: BufferRef,
    /// Values of a vector.
    pub values: usize,
    /// Vectors of a token.
    pub stacks: usize,
    /// Values from one vector's start to the next's, of the same token.
    pub stride: usize,
    /// Tokens there is room for.
    pub tokens: usize,
    /// Values from one token's start to the next's.
    pub pitch: usize,
}

impl Batch {
    /// The vectors of its tokens, each of which has one.
    pub(crate) fn vectors(&self) -> Tensor {
        Tensor { buffer: self.buffer, shape: [self.values, self.tokens], stride: self.pitch }
    }
}
