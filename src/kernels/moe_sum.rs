//! The weighted sum of the chosen experts' outputs, into the residual stream.

use super::reference::{WeightedSum, by_token};
use super::{Case, CaseBuilder, Kernel, expect_shape, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Target, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/moe_sum.wgsl");
const WORKGROUP: usize = 64;

params! { width: u32, y_stride: u32, slots: u32 }

pub(super) const KERNEL: Kernel =
    Kernel { name: "moe_sum", op: OP, params: Params::FIELDS, matrices: &[], several: false, cases };

impl Builder {
    /// x {n} += `Σ weights[slot] · y[slot]`, for weights {slots} and y {n, slots}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn moe_sum(&mut self, label: &str, weights: &Tensor, y: &Tensor, x: &Tensor) -> Result<()> {
        expect_shape(KERNEL.name, "y", y.shape[0], x.shape[0])?;
        expect_shape(KERNEL.name, "weights", weights.shape[0], y.shape[1])?;
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP);
        let bindings =
            vec![self.bound("weights", weights.buffer), self.bound("y", y.buffer), self.bound("x", x.buffer)];
        let params = Params { width: x.shape[0] as u32, y_stride: y.stride as u32, slots: weights.shape[0] as u32 };
        let cost = Cost::of_activations(weights.bytes() + y.bytes() + 2 * x.bytes());
        self.computes(KERNEL.name, WeightedSum { weights: weights.buffer, y: by_token(y, 1), x: by_token(x, 1) });
        self.step(label, variant, bindings, &params, [x.shape[0].div_ceil(WORKGROUP), 1, 1], cost)
    }
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let case = |(width, slots): (usize, usize)| {
        let mut case = CaseBuilder::new(target, 1);
        let (weights, ws) = case.input("weights", [slots, 1]);
        let (y, ys) = case.input("y", [width, slots]);
        let (x, xs) = case.input("x", [width, 1]);
        case.plan.moe_sum("sum", &weights, &y, &x)?;
        let element = |i: usize| {
            let terms = (0..slots).map(|s| ws[s] as f64 * ys[s * width + i] as f64);
            let start = (xs[i] as f64, xs[i].abs() as f64);
            terms.fold(start, |(sum, size), term| (sum + term, size + term.abs()))
        };
        let (want, sizes) = (0..width).map(element).unzip();
        case.expect(&x, want, sizes, 1e-6);
        Ok(case.finish(format!("{slots} x {width}")))
    };
    [(1, 1), (70, 3), (2048, 4)].into_iter().map(case).collect()
}
