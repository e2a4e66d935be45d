//! Root mean square norm.

use super::matvec::{Input, Norm};
use super::rounded::Stream;
use super::{Case, CaseBuilder, Kernel, expect_shape, params};
use crate::error::Result;
use crate::plan::{Builder, Moved, Target, Tensor, VariantBuilder, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/rms_norm.wgsl");
const WORKGROUP: usize = 256;

params! { width: u32, epsilon: f32 }

pub(super) const KERNEL: Kernel = Kernel { name: "rms_norm", op: OP, params: Params::FIELDS, matrices: &[], cases };

impl Builder {
    /// The stream under a norm, the one that was told to the step that left it: left to the product that follows, or
    /// computed here.
    ///
    /// # Errors
    /// As [`Builder::rms_norm`].
    pub fn normed(&mut self, label: &str, stream: &Stream, norm: &Norm) -> Result<Input> {
        let Stream { x, rounded } = *stream;
        if self.target().fusions.norm {
            return Ok(Input { tensor: x, norm: Some(norm.clone()), rounded });
        }
        Ok(Input::from(&self.rms_norm(label, &x, &norm.weight, norm.epsilon)?))
    }

    /// y {n} = x / sqrt(mean(x²) + epsilon) · weight, for x {n} and weight {n}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the widths differ.
    pub fn rms_norm(&mut self, label: &str, x: &Tensor, weight: &Weight, epsilon: f32) -> Result<Tensor> {
        expect_shape(KERNEL.name, &weight.name, weight.shape[0], x.shape[0])?;
        let y = self.tensor(label, x.shape);
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP).usual_team(self.target());
        let bindings = vec![self.bound("x", x.buffer), self.bound_vector("weight", weight), self.bound("y", y.buffer)];
        let params = Params { width: x.shape[0] as u32, epsilon };
        let moved = Moved { weights: weight.matrix_bytes(), activations: 2 * x.bytes(), cache: 0 };
        self.step(label, variant, bindings, &params, [1, 1, 1], moved)?;
        Ok(y)
    }
}

/// x / sqrt(mean(x²) + epsilon) · weight, in f64.
pub(super) fn twin(x: &[f32], weight: &[f32], epsilon: f32) -> Vec<f64> {
    let mean = x.iter().map(|&v| (v as f64).powi(2)).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + epsilon as f64).sqrt();
    x.iter().zip(weight).map(|(&x, &w)| x as f64 * scale * w as f64).collect()
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let case = |(width, epsilon)| {
        let mut case = CaseBuilder::new(target, 1);
        let (x, xs) = case.input("x", [width, 1]);
        let (weight, ws) = case.vector("norm", width)?;
        let y = case.plan.rms_norm("y", &x, &weight, epsilon)?;
        let want = twin(&xs, &ws, epsilon);
        let sizes = want.iter().map(|v| v.abs()).collect();
        case.expect(&y, want, sizes, 2e-6);
        Ok(case.finish(format!("{width} epsilon {epsilon}")))
    };
    [(1, 1e-5), (31, 0.5), (256, 1e-6), (2048, 1e-5), (5000, 0.0)].into_iter().map(case).collect()
}
