//! The steps that sample the next tokens. They are the last steps of a batch's plan, or, with bias, penalties or a
//! mask, a plan of their own.
//!
//! Most generations need none of these, so the steps that adjust or mask logits are in no batch's plan. They change a
//! copy, so that the logits remain what the model computed.

use super::Config;
use super::batch_plan::{BatchPlan, Head, Outputs};
use crate::error::Result;
use crate::plan::{Builder, LocalId, Plan, Target, Tensor};

/// The steps of a plan that sample the next tokens from logits. They end with the last step of the plan.
#[derive(Debug, Clone, Copy)]
pub struct SamplingSteps {
    /// The index of the first of them.
    pub first: usize,
    /// The index of the one that is needed only if there are filters (top-k or top-p).
    pub histogram: usize,
    /// The index of the one that is needed only if there are drafts to verify.
    pub accept: usize,
}

impl SamplingSteps {
    /// Whether a step is needed, given whether there are filters, and drafts to verify.
    pub fn needs(&self, step: usize, filters: bool, verifies: bool) -> bool {
        (filters || step != self.histogram) && (verifies || step != self.accept)
    }
}

/// The plan of sampling from adjusted or masked logits. Its steps replace those of a batch's plan from
/// [`SamplingSteps::first`] on.
pub struct SamplingPlan {
    /// The steps.
    pub plan: Plan,
    /// The local buffers that it shares with the batch's plan: the index here, and the index there.
    pub shared: [(LocalId, LocalId); 4],
    /// The steps that sample.
    pub sampling: SamplingSteps,
    /// The local buffer that [`Adjustment`](crate::kernels::Adjustment)s are written to.
    pub adjustments: LocalId,
    /// The step that adjusts, which is needed only if there are adjustments.
    pub adjust: usize,
    /// The local buffer that masks are written to, one a row, if the logits are masked: see
    /// [`mask_words`](crate::kernels::mask_words).
    pub mask: Option<LocalId>,
}

/// Plans sampling from the logits that the head of a batch's plan computes, with up to `capacity` adjustments; if
/// `masked`, only from the tokens that a mask allows.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) for shapes that no grid has.
pub fn plan_sampling(
    config: &Config,
    batch: &BatchPlan,
    head: &Head,
    target: &Target,
    capacity: usize,
    masked: bool,
) -> Result<SamplingPlan> {
    let rows = batch.plan.rows;
    let mut b = Builder::for_rows(target, config.rotary / 2, rows);
    let logits = b.tensor("logits", head.logits.shape);
    let adjusted = b.tensor("adjusted", head.logits.shape);
    let mask = match masked {
        true => Some(b.mask_logits("mask", &logits, &adjusted)?),
        false => {
            let whole = |tensor: Tensor| Tensor { shape: [tensor.stride * rows, 1], ..tensor };
            b.copy("copy", &whole(logits), &whole(adjusted))?;
            None
        }
    };
    let adjust = b.steps();
    let adjustments = b.adjust("adjust", &adjusted, capacity)?;
    let sampling = sample_tokens(&mut b, &adjusted, batch.outputs)?;
    let same = |local| (local, local);
    let logits = (logits.buffer.local()?, head.logits.buffer.local()?);
    let shared = [same(Plan::BATCH), same(Plan::SAMPLED), same(Plan::SAMPLING), logits];
    Ok(SamplingPlan { plan: b.finish(), shared, sampling, adjustments, adjust, mask })
}

/// Appends the steps that sample a token from each row of the logits {vocab, rows}, and verify drafts if there are any.
pub(super) fn sample_tokens(b: &mut Builder, logits: &Tensor, outputs: Outputs) -> Result<SamplingSteps> {
    let first = b.steps();
    let slices = b.slice_max("slice_max", logits)?;
    let histogram = b.steps();
    b.histogram("histogram", logits, &slices)?;
    b.sample("sample", logits, &slices)?;
    let accept = b.steps();
    if matches!(outputs, Outputs::Verified | Outputs::Sequences) {
        b.accept("accept")?;
    }
    Ok(SamplingSteps { first, histogram, accept })
}
