//! Root mean square norm.

use super::computes::Normed;
use super::matvec::{Input, Norm};
use super::rounded::Residual;
use super::{Kernel, expect_shape, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/rms_norm.wgsl");
const WORKGROUP: usize = 256;

params! { width: u32, epsilon: f32, x_pitch: u32, y_pitch: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "rms_norm", op: OP, params: Params::FIELDS, matrices: &[] };

impl Builder {
    /// The residual stream, normalised with the norm that was passed to the step that wrote the stream: applied in the
    /// product that follows, computed already, or computed here.
    ///
    /// # Errors
    /// As [`Builder::rms_norm`].
    pub fn normed(&mut self, label: &str, stream: &Residual, norm: &Norm) -> Result<Input> {
        let Residual { x, rounded, normed } = *stream;
        if let Some(h) = normed {
            return Ok(Input::from(&h));
        }
        if self.target().fusions.norm && !self.by_tiles() {
            return Ok(Input { tensor: x, norm: Some(norm.clone()), rounded });
        }
        Ok(Input::from(&self.rms_norm(label, &x, norm)?))
    }

    /// y {n, tokens} = x / sqrt(mean(x²) + epsilon) · weight, vector by vector, for x {n, tokens} and a norm {n}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the widths differ.
    pub fn rms_norm(&mut self, label: &str, x: &Tensor, norm: &Norm) -> Result<Tensor> {
        let ([width, count], Norm { weight, epsilon }) = (x.shape, norm);
        expect_shape(KERNEL.name, "x's vectors", count, self.rows())?;
        expect_shape(KERNEL.name, &weight.name, weight.shape[0], width)?;
        let y = self.tensor(label, x.shape);
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP).usual_team(self.target_for(KERNEL.name));
        let bindings =
            vec![self.bound("x", x.buffer), self.bound("weight", weight.buffer()), self.bound("y", y.buffer)];
        let params =
            Params { width: width as u32, epsilon: *epsilon, x_pitch: x.stride as u32, y_pitch: y.stride as u32 };
        let cost = Cost { weights: weight.matrix_bytes(), activations: 8 * (width * count) as u64, ..Cost::default() };
        self.computes(KERNEL.name, Normed { x: *x, y, norm: norm.clone(), side_output: None });
        self.step(label, variant, bindings, &params, [count, 1, 1], cost)?;
        Ok(y)
    }
}
