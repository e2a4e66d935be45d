//! The next token.

use super::case::Kind;
use super::slice_max::{EDGES, Edit, likeliest};
use super::{Case, CaseBuilder, Kernel, params};
use crate::error::Result;
use crate::plan::{BufferRef, Builder, Moved, Plan, Target, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/sample.wgsl");
const WORKGROUP: usize = 256;

params! { slices: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "sample", op: OP, params: Params::FIELDS, cases };

impl Builder {
    /// token = the likeliest, given the maxima {slices} of the logits' slices.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn sample(&mut self, label: &str, maxima: &Tensor) -> Result<()> {
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP)
            .file(source!("lib/candidates.wgsl"))
            .file(source!("lib/maxima.wgsl"));
        let bindings = vec![self.bound("maxima", maxima.buffer), self.bound_token()];
        let params = Params { slices: maxima.shape[0] as u32 / 2 };
        let moved = Moved { activations: maxima.bytes() + 8, ..Moved::default() };
        self.step(label, variant, bindings, &params, [1, 1, 1], moved)
    }
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let case = |(name, count, edit): (&str, usize, Edit)| {
        let mut case = CaseBuilder::new(target, 1);
        let logits = case.plan.tensor("logits", [count, 1]);
        let mut values = case.noise(count);
        edit(&mut values);
        case.fill(&logits, &values);
        let maxima = case.plan.slice_max("maxima", &logits)?;
        case.allow(maxima.buffer);
        case.plan.sample("sample", &maxima)?;
        let token = f64::from(likeliest(&values).1);
        case.expect_at(BufferRef::Local(Plan::TOKEN), Kind::U32, 0, vec![token, token], 0.0);
        Ok(case.finish(format!("{name}, {count}")))
    };
    EDGES.into_iter().map(case).collect()
}
