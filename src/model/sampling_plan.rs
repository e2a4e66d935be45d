//! The choice of the next token, as steps: those that end a token's plan, and a plan of its own with bias and
//! penalties.
//!
//! Most generations have neither, and should not pay for them: the steps that adjust logits are in no token's plan.
//! They work on a copy, so that the logits stay what the model made of them.

use super::Config;
use super::token_plan::{SamplingSteps, TokenPlan};
use crate::error::Result;
use crate::plan::{Builder, Plan, Target, Tensor};

/// The plan of a choice from adjusted logits, and where its inputs are. It takes the place of a token's steps from
/// [`SamplingSteps::first`] on.
pub struct SamplingPlan {
    /// The steps.
    pub plan: Plan,
    /// The local buffers that are those of the token's plan: here, and there.
    pub shared: Vec<(usize, usize)>,
    /// Where the choice is.
    pub sampling: SamplingSteps,
    /// The local buffer that [`Penalties`](crate::kernels::Penalties) and adjustments are written to.
    pub adjustments: usize,
}

/// Plans the choice from a token's logits, with room for so many adjustments.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) for shapes that no grid has.
pub fn plan_sampling(config: &Config, token: &TokenPlan, target: Target, room: usize) -> Result<SamplingPlan> {
    let mut b = Builder::new(target, config.rotary / 2);
    let logits = b.tensor("logits", [config.vocab, 1]);
    let adjusted = b.tensor("adjusted", [config.vocab, 1]);
    let padded = |tensor: Tensor| Tensor { shape: [tensor.stride, 1], ..tensor };
    b.copy("copy", &padded(logits), &padded(adjusted))?;
    let adjustments = b.adjust("adjust", &adjusted, room)?;
    let sampling = sample_token(&mut b, &adjusted)?;
    let shared = vec![(Plan::BATCH, Plan::BATCH), (Plan::TOKENS, Plan::TOKENS), (logits.buffer.local()?, token.logits)];
    Ok(SamplingPlan { plan: b.finish(), shared, sampling, adjustments })
}

/// Appends the steps that choose a token from logits {vocab}.
pub(super) fn sample_token(b: &mut Builder, logits: &Tensor) -> Result<SamplingSteps> {
    let first = b.steps();
    let slices = b.slice_max("slice_max", logits)?;
    let histogram = b.steps();
    b.histogram("histogram", logits, &slices)?;
    let params = b.sample("sample", logits, &slices)?;
    Ok(SamplingSteps { first, histogram, params })
}
