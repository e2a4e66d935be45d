//! The weighted sum of the chosen experts' outputs, into the residual stream of every token.

use super::reference::WeightedSum;
use super::{Case, CaseBuilder, Kernel, expect_multiple, expect_shape};
use crate::error::Result;
use crate::plan::{Batch, Builder, Cost, Target, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/slot_sum.wgsl");
const WORKGROUP: usize = 128;

pub(super) const KERNEL: Kernel =
    Kernel { name: "slot_sum", op: OP, params: &[], matrices: &[], several: false, cases };

impl Builder {
    /// x {n} += `Σ weights[slot] · y[slot]` for every token, for weights {slots, tokens} and y {n, slots}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn slot_sum(&mut self, label: &str, weights: &Tensor, y: &Batch, x: &Batch) -> Result<()> {
        expect_shape(KERNEL.name, "y", y.values, x.values)?;
        expect_shape(KERNEL.name, "weights", weights.shape[0], y.stacks)?;
        for length in [x.pitch, y.stride] {
            expect_multiple(KERNEL.name, "x", length, 4)?;
        }
        let chunks = x.values.div_ceil(4); // padding is zero, and stays so
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP)
            .constant("WIDTH", "n", chunks)
            .constant("TOP_K", "k", y.stacks)
            .constant("Y_STRIDE", "y", y.stride / 4)
            .constant("X_PITCH", "x", x.pitch / 4);
        let variant = self.state_files(variant);
        let buffers = [("weights", weights.buffer), ("y", y.buffer), ("x", x.buffer)];
        let mut bindings = vec![self.bound_state()];
        bindings.extend(buffers.map(|(name, buffer)| self.bound(name, buffer)));
        let cost = Cost::of_activations(weights.bytes() + y.bytes() + 2 * x.bytes());
        self.computes(KERNEL.name, WeightedSum { weights: weights.buffer, y: *y, x: *x });
        self.step(label, variant, bindings, &(), [chunks.div_ceil(WORKGROUP), x.tokens, 1], cost)
    }
}

fn cases(target: Target) -> Result<Vec<Case>> {
    [(4, 1, (1, 1)), (33, 2, (3, 3)), (72, 3, (5, 4)), (2048, 4, (8, 7))]
        .into_iter()
        .map(|shape| case(target, shape))
        .collect()
}

fn case(target: Target, (width, slots, (tokens, count)): (usize, usize, (usize, usize))) -> Result<Case> {
    let mut case = CaseBuilder::for_chunk(target, 1, tokens);
    case.chunk(0, count);
    let weights = case.plan.tensor_with_stride("weights", [slots, tokens], slots);
    let ws = case.noise(slots * count);
    case.fill_bytes(weights.buffer, bytemuck::cast_slice(&ws).to_vec());
    let (y, ys) = case.batch("y", [width, slots], tokens, count);
    let (x, xs) = case.batch("x", [width, 1], tokens, count);
    case.plan.slot_sum("sum", &weights, &y, &x)?;
    let element = |i: usize| {
        let (token, value) = (i / width, i % width);
        let slot = |k: usize| token * slots + k;
        let terms = (0..slots).map(|k| ws[slot(k)] as f64 * ys[slot(k) * width + value] as f64);
        let start = (xs[i] as f64, xs[i].abs() as f64);
        terms.fold(start, |(sum, size), term| (sum + term, size + term.abs()))
    };
    let (want, sizes) = (0..width * count).map(element).unzip();
    case.expect_batch(&x, want, sizes, 1e-6);
    Ok(case.finish(format!("{slots} x {width}, {count} of {tokens} tokens")))
}
