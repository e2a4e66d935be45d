//! The steps that sample the next tokens: those that end a batch's plan, and a plan of its own with bias and penalties.
//!
//! Most generations have neither, and should not pay for them: the steps that adjust logits are in no batch's plan. They
//! work on a copy, so that the logits stay what the model made of them.

use super::Config;
use super::batch_plan::{BatchPlan, Head, Outputs};
use crate::error::Result;
use crate::plan::{Builder, LocalId, Plan, Target, Tensor};

/// The steps that sample the next tokens from logits, to the last of the plan.
#[derive(Debug, Clone, Copy)]
pub struct SamplingSteps {
    /// The first one.
    pub first: usize,
    /// The one that only filters need.
    pub histogram: usize,
}

/// The plan of sampling from adjusted logits. It takes the place of a batch's steps from [`SamplingSteps::first`] on.
pub struct SamplingPlan {
    /// The steps.
    pub plan: Plan,
    /// The local buffers that are those of the batch's plan: here, and there.
    pub shared: [(LocalId, LocalId); 4],
    /// Those of them that sample.
    pub sampling: SamplingSteps,
    /// The local buffer that [`Adjustment`](crate::kernels::Adjustment)s are written to.
    pub adjustments: LocalId,
}

/// Plans sampling from the logits that the head of a batch's plan leaves, with room for so many adjustments.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) for shapes that no grid has.
pub fn plan_sampling(
    config: &Config,
    batch: &BatchPlan,
    head: &Head,
    target: &Target,
    room: usize,
) -> Result<SamplingPlan> {
    let rows = batch.plan.rows;
    let mut b = Builder::for_rows(target, config.rotary / 2, rows);
    let logits = b.tensor("logits", head.logits.shape);
    let adjusted = b.tensor("adjusted", head.logits.shape);
    let whole = |tensor: Tensor| Tensor { shape: [tensor.stride * rows, 1], ..tensor };
    b.copy("copy", &whole(logits), &whole(adjusted))?;
    let adjustments = b.adjust("adjust", &adjusted, room)?;
    let sampling = sample_tokens(&mut b, &adjusted, batch.outputs)?;
    let same = |local| (local, local);
    let logits = (logits.buffer.local()?, head.logits.buffer.local()?);
    let shared = [same(Plan::BATCH), same(Plan::SAMPLED), same(Plan::SAMPLING), logits];
    Ok(SamplingPlan { plan: b.finish(), shared, sampling, adjustments })
}

/// Appends the steps that sample a token from the logits {vocab} of each row, and verify drafts if there are any.
pub(super) fn sample_tokens(b: &mut Builder, logits: &Tensor, outputs: Outputs) -> Result<SamplingSteps> {
    let first = b.steps();
    let slices = b.slice_max("slice_max", logits)?;
    let histogram = b.steps();
    b.histogram("histogram", logits, &slices)?;
    b.sample("sample", logits, &slices)?;
    if outputs == Outputs::Verified {
        b.accept("accept")?;
    }
    Ok(SamplingSteps { first, histogram })
}
