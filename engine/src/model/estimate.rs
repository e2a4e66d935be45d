//! Estimates how much GPU memory a model needs, before anything is allocated.

use super::batch_plan::plan_alone;
use super::check::{CheckedBatch, check_memory};
use super::draft_plan::block_shapes;
use super::load::Model;
use super::options::{LoadOptions, target};
use super::upload::staging_memory;
use super::verify::verify_memory;
use super::{BatchPlan, BatchShape, CacheShape, Config, ModelWeights, PromptOptions};
use super::{plan_batch, plan_drafted_rows, plan_drafting, sampled_bytes};
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::gpu::{Fetch, Gpu, Results};
use crate::plan::{Plan, Purpose, ScratchKey, Target};
use crate::quant::Arithmetic;
use crate::speculate::DraftKind;
use serde::Serialize;
use std::collections::HashMap;

/// The GPU memory that a model and a session need, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Estimate {
    /// The weights, which all sessions share.
    pub weights: u64,
    /// The cache of one session.
    pub cache: u64,
    /// The activations of one session: those of a token and, after the first long prompt, those of the largest batch.
    /// For a context of more than 2^20 tokens, they are estimated as for one of 2^20.
    pub scratch: u64,
    /// Memory that is only needed while the model is loaded, for its weights or for the check of its kernels.
    pub staging: u64,
    /// The context of the cache, and the type of its values.
    pub shape: CacheShape,
    /// Whether the model and one session fit, as far as that is known.
    pub fit: Fit,
}

/// Whether a model and one session fit. Serialized as `"fits"`, or `{"memory": {"needed": …}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fit {
    /// They fit everything that is known about the device. Other programs may need memory too.
    Fits,
    /// Unknown, because there is no device, or the device does not report how much memory it has.
    Unknown,
    /// They need more memory than there is.
    Memory {
        /// The most bytes that are needed at once.
        needed: u64,
        /// The memory of the adapter, or [`GpuOptions::memory_limit`](crate::gpu::GpuOptions::memory_limit) if that is
        /// less, without what wglm holds on the device already.
        available: u64,
    },
    /// The KV cache of one layer is larger than the device allows for one binding or buffer.
    Context {
        /// The size in bytes.
        bytes: u64,
        /// The size in bytes that the device allows.
        allowed: u64,
        /// The largest context in tokens that fits.
        most: usize,
    },
    /// A tensor or buffer is larger than the device allows for one binding or buffer.
    Piece {
        /// The tensor or buffer.
        tensor: String,
        /// The size in bytes.
        bytes: u64,
        /// The limit's name in WebGPU.
        limit: &'static str,
        /// The limit's value.
        allowed: u64,
    },
}

impl Estimate {
    /// The most bytes at once, of the model and one session.
    pub fn most(&self) -> u64 {
        self.weights.saturating_add(self.staging.max(self.cache.saturating_add(self.scratch)))
    }
}

impl Model {
    /// Estimates the memory that [`Model::load`] with these options, and one session, would need on a device. Without a
    /// device the estimate is for kernels with subgroup operations, and `fit` is unknown. This reads the file's header
    /// and allocates nothing on the device.
    ///
    /// # Errors
    /// [`Error::Metadata`], [`Error::Tensor`] and [`Error::Unsupported`] if the file has a defect, inside an
    /// [`Error::File`] if it has a path.
    pub fn estimate(file: &Gguf, options: &LoadOptions, gpu: Option<&Gpu>) -> Result<Estimate> {
        Self::estimated(file, options, gpu).map_err(|error| file.name(error))
    }

    fn estimated(file: &Gguf, options: &LoadOptions, gpu: Option<&Gpu>) -> Result<Estimate> {
        let config = Config::read(file)?;
        let shape = options.cache_for(&config);
        let used = options.tuning.as_ref().zip(gpu).filter(|(tuning, gpu)| tuning.suits(gpu, file, options).is_ok());
        let options = &used.map_or_else(|| options.clone(), |(tuning, _)| options.choosing(&tuning.choices));
        let target = match gpu {
            Some(gpu) => target(gpu, options),
            None => {
                let arithmetic = options.arithmetic_or(Arithmetic::default());
                options.overrides.apply(Target { arithmetic, ..Target::default() })
            }
        };
        let (weights, _) = ModelWeights::with_block(file, &config, options)?;
        let token = plan_alone(&weights, &config, shape, &target)?;
        let drafting = weights
            .block
            .as_ref()
            .map(|_| plan_drafting(&weights, &config, shape, &target, BatchShape::ALONE))
            .transpose()?;
        let prompt = gpu.map_or(options.prompt, |gpu| options.prompt.on(gpu.report()));
        let plans = plans(&config, &token, &target, (prompt, options.speculation))?;
        let (guessed, all) = ((prompt, options.speculation), options.compiles_all(gpu));
        let batches = CheckedBatch::at_load(&config, guessed, options.check, all);
        let checked = check_memory((&weights, &config, shape), &target, &batches)?;
        let caches = |plan: &Plan| plan.local_memory(Purpose::Cache);
        let (weights, cache) =
            (token.plan.weight_memory(), caches(&token.plan) + drafting.as_ref().map_or(0, |it| caches(&it.plan)));
        // Logits or hidden values, and sampled tokens twice, where the host reads them.
        let sampled = sampled_bytes(1);
        let read = Fetch::memory(4 * config.vocab.max(config.width) as u64, 1)
            + 2 * Results::memory(sampled, Results::CAPACITY);
        let drafting = drafting.map_or(0, |it| drafting_memory(&it.plan));
        let scratch = scratch(&token.plan, &plans) - token.plan.local(Plan::SAMPLED).bytes + sampled + drafting + read;
        let max_binding = gpu.map_or(u64::MAX, |gpu| gpu.capabilities().max_binding);
        let staging = staging_memory(weights).max(verify_memory(&token.plan.weights, max_binding)?).max(checked);
        let mut estimate = Estimate { weights, cache, scratch, staging, shape, fit: Fit::Unknown };
        if let Some(gpu) = gpu {
            let plans = std::iter::once(&token.plan).chain(&plans);
            let context = match token.check(gpu.capabilities()) {
                Err(Error::ContextTooLarge { bytes, allowed, most, .. }) => Some(Fit::Context { bytes, allowed, most }),
                _ => None,
            };
            let piece = context.or_else(|| plans.into_iter().find_map(|plan| piece(plan, gpu)));
            estimate.fit = piece.unwrap_or_else(|| fit(gpu, estimate.most()));
        }
        Ok(estimate)
    }
}

/// The deepest context whose plans are made for an estimate. Plans of large chunks have steps for every 4096 tokens in
/// the cache, so those of a context that no GPU holds would take hours; what they need besides the cache hardly grows.
const DEEPEST: usize = 1 << 20;

/// The plans of several rows that a session may need: those of prompts, of verifying drafts, and of a
/// multi-token-prediction block.
fn plans(
    config: &Config,
    token: &BatchPlan,
    target: &Target,
    (prompt, guesses): (PromptOptions, DraftKind),
) -> Result<Vec<Plan>> {
    let context = token.cache.context.min(DEEPEST);
    let verified = BatchShape::verified(config, guesses, context);
    let mut plans = Vec::new();
    for shape in BatchShape::all(prompt, context).chain(verified) {
        plans.push(plan_batch(config, token, target, shape)?.plan);
    }
    if token.weights.block.is_some() {
        for shape in block_shapes(prompt, context) {
            plans.push(plan_drafted_rows(&token.weights, config, token.cache, target, shape)?.plan);
        }
    }
    Ok(plans)
}

/// Bytes of everything but weights and caches, all plans in use.
fn scratch(token: &Plan, batches: &[Plan]) -> u64 {
    let mut shared: HashMap<ScratchKey, u64> = HashMap::new();
    for (_, key, bytes) in batches.iter().flat_map(Plan::scratch) {
        let largest = shared.entry(key).or_default();
        *largest = bytes.max(*largest);
    }
    let each = batches.iter().map(own).sum::<u64>();
    let token = token.params_memory() + token.local_memory(Purpose::State) + token.local_memory(Purpose::Scratch);
    token + shared.values().sum::<u64>() + each
}

/// Bytes of the plan that makes drafts, except for its cache and what all plans share.
fn drafting_memory(plan: &Plan) -> u64 {
    let shared = [Plan::SAMPLED, Plan::PAGES, Plan::SAMPLING].map(|local| plan.local(local).bytes);
    let all = plan.local_memory(Purpose::State) + plan.local_memory(Purpose::Scratch) + plan.params_memory();
    all - shared.iter().sum::<u64>()
}

/// Bytes of what a plan shares with no other.
fn own(plan: &Plan) -> u64 {
    plan.params_memory() + plan.local(Plan::BATCH).bytes
}

/// The part of a plan that is too large for the device.
fn piece(plan: &Plan, gpu: &Gpu) -> Option<Fit> {
    if let Err(Error::TooLarge { tensor, bytes, limit, allowed, .. }) =
        plan.check_bindings(gpu.capabilities().max_binding)
    {
        return Some(Fit::Piece { tensor, bytes, limit, allowed });
    }
    let allowed = gpu.capabilities().max_buffer;
    let weights = plan.weights.iter().map(|weight| (weight.name.to_string(), weight.bytes()));
    let locals = plan.locals.iter().map(|local| (local.name.clone(), local.bytes));
    let (tensor, bytes) = weights.chain(locals).find(|(_, bytes)| *bytes > allowed)?;
    Some(Fit::Piece { tensor, bytes, limit: "max_buffer_size", allowed })
}

/// Whether a device has `needed` bytes.
fn fit(gpu: &Gpu, needed: u64) -> Fit {
    let memory = gpu.memory();
    let known = [gpu.report().memory, memory.limit].into_iter().flatten().min();
    match known.map(|bytes| bytes.saturating_sub(memory.held)) {
        None => Fit::Unknown,
        Some(available) if available < needed => Fit::Memory { needed, available },
        Some(_) => Fit::Fits,
    }
}
