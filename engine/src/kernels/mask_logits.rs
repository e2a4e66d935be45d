//! A mask on logits, before a token is chosen: those of forbidden tokens become minus infinity.

use super::computes::Masked;
use super::{Kernel, expect_multiple, expect_shape, params};
use crate::error::Result;
use crate::plan::{BufferRef, Builder, Cost, LocalId, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mask_logits.wgsl");
const WORKGROUP: usize = 256;

params! { count: u32, pitch: u32, words: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "mask_logits", op: OP, params: Params::FIELDS, matrices: &[] };

/// The number of words of a row's mask: one bit for each logit, the lowest bit of a word first.
pub const fn mask_words(logits: usize) -> usize {
    logits.div_ceil(u32::BITS as usize)
}

impl Builder {
    /// masked {n, rows} = logits {n, rows} where the mask of the row has a one, and minus infinity elsewhere. Returns
    /// the local buffer of the masks {[words](mask_words), rows}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes differ; see [`Builder::step`].
    pub fn mask_logits(&mut self, label: &str, logits: &Tensor, masked: &Tensor) -> Result<LocalId> {
        let [count, rows] = logits.shape;
        expect_shape(KERNEL.name, "masked", masked.shape[0], count)?;
        expect_shape(KERNEL.name, "masked", masked.shape[1], rows)?;
        expect_shape(KERNEL.name, "masked", masked.stride, logits.stride)?;
        expect_multiple(KERNEL.name, "logits", logits.stride, 4)?;
        let words = mask_words(count);
        let mask = self.setting("mask", (4 * words * rows) as u64);
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP);
        let bindings = vec![
            self.bound("logits", logits.buffer),
            self.bound("mask", BufferRef::Local(mask)),
            self.bound("masked", masked.buffer),
        ];
        let params = Params { count: count as u32, pitch: logits.stride as u32 / 4, words: words as u32 };
        let cost = Cost::of_activations(logits.bytes() + masked.bytes() + (4 * words * rows) as u64);
        self.computes(KERNEL.name, Masked { logits: *logits, masked: *masked, mask });
        self.step(label, variant, bindings, &params, [count.div_ceil(4 * WORKGROUP), rows, 1], cost)?;
        Ok(mask)
    }
}
