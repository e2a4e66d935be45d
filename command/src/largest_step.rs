//! Finds the step that would take longest on a slow GPU, among all plans that the options allow.

use super::output;
use serde_json::{Value, json};
use wglm_engine::instruments::{BatchPlan, BatchShape, Plan, Step, StepLimit, Target, plan_batch};
use wglm_engine::{Config, PromptOptions, Result};

/// A step and the circumstances under which it takes longest.
pub struct LargestStep {
    step: Step,
    /// The number of tokens that are computed together.
    tokens: usize,
    cached: u64,
    seconds: f64,
    limit: StepLimit,
}

/// Finds the largest step of a token at the end of its context, and of all chunks of prompts within that context.
pub fn of_all(
    config: &Config,
    token: &BatchPlan,
    target: &Target,
    prompt: PromptOptions,
) -> Result<Option<LargestStep>> {
    let (limit, context) = (target.limit, token.cache.context);
    let of = |plan: &Plan, tokens, cached: usize| {
        let (step, seconds) = plan.largest_step(&limit, cached as u64)?;
        Some(LargestStep { step: step.clone(), tokens, cached: cached as u64, seconds, limit })
    };
    let mut largest = of(&token.plan, 1, context);
    for shape in BatchShape::all(prompt, context) {
        let plan = plan_batch(config, token, target, shape)?.plan;
        let own = of(&plan, shape.rows, shape.cached(context));
        largest = largest.into_iter().chain(own).max_by(|one, other| one.seconds.total_cmp(&other.seconds));
    }
    Ok(largest)
}

impl LargestStep {
    pub fn json(&self) -> Value {
        json!({
            "label": self.step.label,
            "tokens": self.tokens,
            "cached": self.cached,
            "flops": self.step.cost.operations(self.cached),
            "bytes": self.step.cost.bytes(self.cached),
            "ms": self.seconds * 1e3,
        })
    }

    pub fn line(&self) -> String {
        let Self { step, tokens, cached, seconds, limit } = self;
        let (flops, bytes) = (step.cost.operations(*cached) as f64 / 1e9, output::bytes(step.cost.bytes(*cached)));
        let together = if *tokens == 1 { "a token".to_owned() } else { format!("{tokens} tokens") };
        let (speed, bandwidth) = (limit.flops as f64 / 1e12, limit.bandwidth / 1_000_000_000);
        format!(
            "largest step: {} for {together} with {cached} in the cache, {flops:.1} GFLOP and {bytes}, {:.1} ms at \
             {speed} TFLOP/s and {bandwidth} GB/s",
            step.label,
            seconds * 1e3,
        )
    }
}
