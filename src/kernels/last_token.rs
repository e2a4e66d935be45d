//! The last token of a chunk, by itself.

use super::reference::LastToken;
use super::{Case, CaseBuilder, Kernel, expect_shape, params};
use crate::error::Result;
use crate::plan::{Batch, Builder, Cost, Target, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/last_token.wgsl");
const WORKGROUP: usize = 256;

params! { width: u32, pitch: u32 }

pub(super) const KERNEL: Kernel =
    Kernel { name: "last_token", op: OP, params: Params::FIELDS, matrices: &[], several: false, cases };

impl Builder {
    /// y {n} = x {n} of the chunk's last token.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the widths differ.
    pub fn last_token(&mut self, label: &str, x: &Batch, y: &Tensor) -> Result<()> {
        expect_shape(KERNEL.name, "x's vectors", x.stacks, 1)?;
        expect_shape(KERNEL.name, "y", y.shape[0], x.values)?;
        let variant = self.state_files(VariantBuilder::new(KERNEL.name, OP, WORKGROUP));
        let bindings = vec![self.bound_state(), self.bound("x", x.buffer), self.bound("y", y.buffer)];
        let params = Params { width: x.values as u32, pitch: x.pitch as u32 };
        let cost = Cost::of_activations(2 * y.bytes());
        self.computes(KERNEL.name, LastToken { x: *x, y: *y });
        self.step(label, variant, bindings, &params, [x.values.div_ceil(WORKGROUP), 1, 1], cost)
    }
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let case = |(width, count, tokens): (usize, usize, usize)| {
        let mut case = CaseBuilder::for_chunk(target, 1, tokens);
        case.chunk(3, count);
        let (x, xs) = case.batch("x", [width, 1], tokens, count);
        let y = case.plan.tensor("y", [width, 1]);
        case.plan.last_token("last", &x, &y)?;
        let want = xs.chunks(width).nth(count - 1).unwrap_or_default().iter().map(|v| f64::from(*v)).collect();
        case.expect(&y, want, vec![1.0; width], 0.0);
        Ok(case.finish(format!("{width}, {count} of {tokens} tokens")))
    };
    [(1, 1, 1), (70, 2, 5), (2048, 5, 5)].into_iter().map(case).collect()
}
