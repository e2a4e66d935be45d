//! The sum of a product's parts, plus the selected experts' outputs if there are any, followed by a norm.

use super::computes::SumNormed;
use super::matvec::Norm;
use super::sum_parts::Summands;
use super::{Kernel, Routed, expect_most, expect_multiple, expect_shape, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/sum_normed.wgsl");
const WORKGROUP: usize = 256;

params! { width: u32, staged: u32, parts: u32, x_pitch: u32, h_pitch: u32, epsilon: f32 }

pub(super) const KERNEL: Kernel = Kernel { name: "sum_normed", op: OP, params: Params::FIELDS, matrices: &[] };

/// The selected experts' outputs for every row, which remain to be summed.
pub struct Slots {
    /// The experts and their weights.
    pub routed: Routed,
    /// The outputs {n, slots} of every row. The last slots are those of the selected experts; if there is one more, the
    /// first is that of the shared experts.
    pub y: Tensor,
}

impl Builder {
    /// x {n} = `Σ parts`, or += that plus, if there are any, `Σ weight · y` of the slots, for every row. Returns h {n}
    /// = x / sqrt(mean(x²) + epsilon) · weight of the norm.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub(crate) fn sum_normed(
        &mut self,
        label: &str,
        parts: &Summands,
        (x, add): (&Tensor, bool),
        slots: Option<&Slots>,
        norm: &Norm,
    ) -> Result<Tensor> {
        let [width, rows] = x.shape;
        expect_shape(KERNEL.name, "x's vectors", rows, self.rows())?;
        expect_shape(KERNEL.name, &norm.weight.name, norm.weight.shape[0], width)?;
        let h = self.tensor(&format!("{label}.normed"), x.shape);
        for length in [width, x.pitch, h.pitch, parts.apart, parts.tensor.pitch] {
            expect_multiple(KERNEL.name, "x", length, 4)?;
        }
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP).usual_team(self.target_for(KERNEL.name));
        let mut variant = self.batch_files(variant).switch("ACCUMULATE", "a", add);
        let buffers = [("x", x.buffer), ("weight", norm.weight.buffer()), ("h", h.buffer)];
        let mut bindings = vec![self.bound_batch(), self.bound_summands("parts", parts)];
        bindings.extend(buffers.map(|(name, buffer)| self.bound(name, buffer)));
        let mut activations = parts.bytes() + x.bytes() + h.bytes();
        if let Some(Slots { routed, y }) = slots {
            expect_shape(KERNEL.name, "y", y.shape[0], width)?;
            let (top_k, slots) = (routed.weights.shape[0], y.per_row());
            expect_most(KERNEL.name, "selected experts", top_k, slots)?;
            variant = variant
                .constant("TOP_K", "k", top_k)
                .constant("SLOTS", if slots > top_k { "s" } else { "" }, slots)
                .constant("SLOT_PITCH", "y", y.stride / 4);
            variant = variant.file(source!("lib/slots_weighed.wgsl"));
            let buffers = [("slot_weights", routed.weights.buffer), ("slot_values", y.buffer)];
            bindings.extend(buffers.map(|(name, buffer)| self.bound(name, buffer)));
            activations += y.bytes() / slots as u64 * top_k as u64;
        } else {
            variant = variant.file(source!("lib/slots_none.wgsl"));
        }
        let params = Params {
            width: width as u32,
            staged: (parts.apart / 4) as u32,
            parts: parts.parts as u32,
            x_pitch: (x.pitch / 4) as u32,
            h_pitch: (h.pitch / 4) as u32,
            epsilon: norm.epsilon,
        };
        let cost = Cost { weights: norm.weight.matrix_bytes(), activations, ..Cost::default() };
        let slots = slots.map(|Slots { routed, y }| (routed.weights, *y));
        self.computes(KERNEL.name, SumNormed { parts: *parts, x: *x, add, slots, norm: norm.clone(), h });
        self.step(label, variant, bindings, &params, [rows, 1, 1], cost)?;
        Ok(h)
    }
}
