//! Activations of a chunk of tokens.

use super::{BufferRef, Tensor};
use crate::error::{Error, Result};

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
    /// The vectors of all tokens {values, stacks · tokens}, one after another.
    ///
    /// # Errors
    /// [`Error::Shape`] if those of a token are not as far apart as one token's last and the next one's first.
    pub fn vectors(&self) -> Result<Tensor> {
        let stride = if self.stacks == 1 { self.pitch } else { self.stride };
        if self.pitch == self.stacks * stride {
            return Ok(Tensor { buffer: self.buffer, shape: [self.values, self.stacks * self.tokens], stride });
        }
        let (got, want) = (format!("a pitch of {}", self.pitch), format!("{} strides of {stride}", self.stacks));
        Err(Error::Shape { op: "batch", tensor: "vectors".to_owned(), got, want })
    }
}

impl From<Tensor> for Batch {
    /// Vectors {values, tokens}, one of each token.
    fn from(vectors: Tensor) -> Self {
        let Tensor { buffer, shape: [values, tokens], stride } = vectors;
        Self { buffer, values, stacks: 1, stride, tokens, pitch: stride }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_evenly_spaced_or_refused() {
        let heads = Batch { buffer: BufferRef::Local(0), values: 30, stacks: 3, stride: 32, tokens: 5, pitch: 96 };
        let all = heads.vectors().unwrap();
        assert_eq!((all.shape, all.stride), ([30, 15], 32));
        assert!(Batch { pitch: 100, ..heads }.vectors().is_err());
        let one = Batch { stacks: 1, pitch: 100, ..heads }.vectors().unwrap();
        assert_eq!((one.shape, one.stride), ([30, 5], 100));
        assert_eq!(Batch::from(one).pitch, 100);
    }
}
