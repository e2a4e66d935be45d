//! The next token: the likeliest, or a draw.

use super::computes::Drawn;
use super::histogram::{BINS, scale};
use super::slice_max::{SLICE, Slices};
use super::{Kernel, Sampling, params};
use crate::error::Result;
use crate::plan::{BufferRef, Builder, Cost, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/sample.wgsl");
const WORKGROUP: usize = 256;

params! { count: u32, slices: u32, scale: f32 }

pub(super) const KERNEL: Kernel = Kernel { name: "sample", op: OP, params: Params::FIELDS, matrices: &[] };

impl Builder {
    /// token {3} = a choice from logits {n} whose slices and histogram are given: the token chosen, the likeliest
    /// ([`NO_TOKEN`](super::NO_TOKEN) for both where no logit is a number), and how many `top_k` and `top_p` left.
    /// Returns the local buffer that a [`Sampling`] is to be written to; as long as it holds zeros, the
    /// likeliest is chosen.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn sample(&mut self, label: &str, logits: &Tensor, slices: &Slices) -> Result<usize> {
        let sampling = self.setting("sampling", size_of::<Sampling>() as u64);
        let variant = self
            .batch_files_of(VariantBuilder::new(KERNEL.name, OP, WORKGROUP), true)
            .constant("BINS", "", BINS)
            .constant("SLICE", "", SLICE)
            .file(source!("lib/candidates.wgsl"))
            .file(source!("lib/maxima.wgsl"))
            .file(source!("lib/order.wgsl"))
            .file(source!("lib/noise.wgsl"))
            .file(source!("lib/bins.wgsl"));
        let bindings = vec![
            self.bound_batch(),
            self.bound("maxima", slices.maxima.buffer),
            self.bound("logits", logits.buffer),
            self.bound("histogram", slices.histogram.buffer),
            self.bound("sampling", BufferRef::Local(sampling)),
            self.bound_token(),
        ];
        let count = logits.shape[0];
        let params = Params { count: count as u32, slices: slices.count() as u32, scale: scale(count) };
        let cost = Cost::of_activations(slices.maxima.bytes() + slices.histogram.bytes());
        self.computes(KERNEL.name, Drawn { logits: *logits, sampling: BufferRef::Local(sampling) });
        self.step(label, variant, bindings, &params, [1, 1, 1], cost)?;
        Ok(sampling)
    }
}
