//! Root mean square norm of vectors, which are also rounded to bytes for the product that follows.

use super::computes::{Normed, SideOutput};
use super::matvec::{HALF, Input, Norm};
use super::rounded::WORDS;
use super::{Kernel, expect_shape, mul_mv, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, VariantBuilder, Weight};
use crate::quant::{Arithmetic, GROUP};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/rms_norm_rounded.wgsl");
const WORKGROUP: usize = 256;

params! { halves: u32, x_pitch: u32, y_pitch: u32, epsilon: f32 }

pub(super) const KERNEL: Kernel = Kernel { name: "rms_norm_rounded", op: OP, params: Params::FIELDS, matrices: &[] };

impl Builder {
    /// y {n, tokens} = x / sqrt(mean(x²) + epsilon) · weight, vector by vector, also rounded to bytes for a product
    /// with `w`, which is so large that its workgroups should not each round the vectors. `None` if that product does
    /// not multiply bytes that another step has rounded.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the widths differ.
    pub fn rms_norm_rounded(&mut self, label: &str, x: &Tensor, norm: &Norm, w: &Weight) -> Result<Option<Input>> {
        let ([width, count], Norm { weight, epsilon }) = (x.shape, norm);
        let bytes = self.target().arithmetic.with(&[w.quant]) == Arithmetic::Int && width.is_multiple_of(GROUP);
        // Where this kernel cannot be used, the product's workgroups normalise and round.
        let usable = !self.target().replaced.contains(KERNEL.name);
        if self.by_tiles() || !bytes || !usable || !self.rounds(mul_mv::KERNEL.name) {
            return Ok(None);
        }
        expect_shape(KERNEL.name, "x's vectors", count, self.rows())?;
        expect_shape(KERNEL.name, &weight.name, weight.shape[0], width)?;
        let y = self.tensor(label, x.shape);
        let Some(rounded) = self.rounded(mul_mv::KERNEL.name, &y, label) else { return Ok(None) };
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP)
            .usual_team(self.target_for(KERNEL.name))
            .constant("GROUP_WORDS", "", WORDS)
            .file(source!("lib/rounding.wgsl"))
            .file(source!("lib/rounded_output.wgsl"));
        let bindings = vec![
            self.bound("x", x.buffer),
            self.bound("weight", weight.buffer()),
            self.bound("y", y.buffer),
            self.bound("rounded_output", rounded.buffer),
        ];
        let pitch = |tensor: &Tensor| (tensor.stride / 4) as u32;
        let halves = (width / HALF) as u32;
        let params = Params { halves, x_pitch: pitch(x), y_pitch: pitch(&y), epsilon: *epsilon };
        let activations = (8 * width * count + 4 * rounded.words) as u64;
        let cost = Cost { weights: weight.matrix_bytes(), activations, ..Cost::default() };
        let side_output = Some(SideOutput { rounded, norm: None });
        self.computes(KERNEL.name, Normed { x: *x, y, norm: norm.clone(), side_output });
        self.step(label, variant, bindings, &params, [count, 1, 1], cost)?;
        Ok(Some(Input { tensor: y, norm: None, rounded: Some(rounded) }))
    }
}
