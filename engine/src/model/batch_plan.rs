//! The plans of batches: of a single row, of a few rows, and of many, which are computed in tiles.
//!
//! Plans are made when they are first used, for 2, 4, 8 and so on rows (`prompt`), over the same weights and caches.
//! They share pipelines: the number of rows and of attention's splits is in the batch and not in the shader, so plans
//! differ in their grids, and in pipelines only if the rows of a product are divided differently. A plan of a prompt
//! ends with the hidden values of its last row, in the buffer from which the head of the plan of a single row computes
//! the logits.
//!
//! The plan of a single row reads the pages of its sequence from a list of its own, which the host rewrites when
//! another session is next: so its kernels know where the list begins and need not read that first.

use super::attention::CacheShape;
use super::draft_plan::{KEPT, saved_states};
use super::graph::{layers, logits};
use super::sampling_plan::{SamplingSteps, sample_tokens};
use super::weights::ModelWeights;
use super::{Config, PromptOptions};
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::gpu::{Capabilities, Matrices};
use crate::kernels::expand_kv::expands_kv;
use crate::kernels::{DRAFTING, KEPT_ROWS, MAX_DRAFTS, VERIFIED_ROWS};
use crate::plan::{Builder, LocalId, Plan, Purpose, StepChoice, Target, Team, Tensor, Tiling};
use crate::quant::GROUP;
use crate::speculate::DraftKind;
use std::sync::Arc;

/// The batches that a plan is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BatchShape {
    /// The most rows of a batch.
    pub rows: usize,
    /// The rows whose logits are wanted.
    pub outputs: Outputs,
    /// The most tokens in the cache before the rows. With more tokens, attention takes longer and its steps are split
    /// into more parts.
    pub depth: usize,
}

/// The rows of a batch whose logits are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outputs {
    /// The last row. Its logits are computed by the head of the plan of a single row.
    Last,
    /// The last row of each of several prompts. The plan leaves the hidden states of all rows, and computes those of a
    /// prompt as the plan for `each` rows of one sequence does.
    LastOfEach {
        /// The most rows of a prompt.
        each: usize,
    },
    /// Every row.
    All,
    /// Every row of a small batch; the rows may belong to different sequences, and hold drafts to verify.
    Sequences,
    /// Every row of a small batch of one sequence. All rows except the first hold drafts to verify.
    Verified,
}

/// The depths that plans are made for, besides the whole context.
const DEPTHS: [usize; 3] = [1024, 16 << 10, 64 << 10];

impl BatchShape {
    /// A single row. Its steps are never split, so one plan serves all depths.
    pub const ALONE: Self = Self { rows: 1, outputs: Outputs::All, depth: 0 };

    /// The shape for `rows` rows after `before` others, in a context of `context` tokens.
    pub fn of(rows: usize, outputs: Outputs, before: usize, context: usize) -> Self {
        let depth = depths(rows, context).find(|depth| *depth >= before);
        Self { rows, outputs, depth: depth.unwrap_or(before) }
    }

    /// The most tokens of a sequence in the cache, those of its rows among them.
    pub fn cached(&self, context: usize) -> usize {
        let rows = if let Outputs::LastOfEach { each } = self.outputs { each } else { self.rows };
        self.depth.saturating_add(rows).min(context.max(rows))
    }

    /// The shape for `rows` rows of several prompts, each of which this shape would compute alone.
    pub fn of_prompts(self, rows: usize) -> Self {
        Self { rows, outputs: Outputs::LastOfEach { each: self.rows }, ..self }
    }

    /// The shapes of steps of up to `most` rows of several sequences.
    pub(super) fn of_sequences(most: usize, context: usize) -> impl Iterator<Item = Self> {
        let capacities = (1..).map(|power| 1 << power).take_while(move |rows| *rows < 2 * most);
        Self::few(capacities, Outputs::Sequences, context)
    }

    /// The shapes of steps that verify drafts.
    pub(super) fn verified(config: &Config, guesses: DraftKind, context: usize) -> impl Iterator<Item = Self> {
        let most = if guesses == DraftKind::Off { 0 } else { most_drafts(config) };
        let capacities = (1..).map(|power| 1 << power).take_while(move |rows| *rows <= 1 + most);
        Self::few(capacities, Outputs::Verified, context)
    }

    /// The shapes of a multi-token-prediction block's batches that read saved hidden states.
    pub(super) fn kept(context: usize) -> impl Iterator<Item = Self> {
        let capacities = (1..).map(|power| 1 << power).take_while(|rows| *rows <= KEPT_ROWS);
        Self::few(capacities, Outputs::Last, context)
    }

    fn few(capacities: impl Iterator<Item = usize>, outputs: Outputs, context: usize) -> impl Iterator<Item = Self> {
        capacities.flat_map(move |rows| depths(rows, context).map(move |depth| Self { rows, outputs, depth }))
    }

    /// The shapes of all batches that prompts are computed in, for a context of `context` tokens.
    pub fn all(options: PromptOptions, context: usize) -> impl Iterator<Item = Self> {
        let capacities = options.capacities().filter(move |_| options.together() > 1);
        capacities
            .flat_map(move |rows| depths(rows, context).map(move |depth| Self { rows, outputs: Outputs::Last, depth }))
    }
}

/// The depths that plans of `rows` rows are made for. Plans of few rows skip the first depth, because a plan for the
/// second takes no longer.
fn depths(rows: usize, context: usize) -> impl Iterator<Item = usize> {
    let first = usize::from(rows <= FEW_TOKENS);
    DEPTHS.into_iter().skip(first).take_while(move |depth| *depth < context).chain([context])
}

/// The plan of batches of a shape, and where their outputs lie.
pub struct BatchPlan {
    /// The steps. Those from [`Plan::head`] on are needed only if logits are wanted.
    pub plan: Plan,
    /// The weights of the model, which all its plans share.
    pub weights: Arc<ModelWeights>,
    /// The residual stream after the layers {width, rows}.
    pub hidden: Tensor,
    /// The local buffer {width} of the last row's residual stream after the layers, if only that row's logits are
    /// wanted.
    pub last: Option<LocalId>,
    /// The head, if logits of every row are wanted.
    pub head: Option<Head>,
    /// The rows whose logits are wanted.
    pub outputs: Outputs,
    /// The buffer of hidden states for a multi-token-prediction block, if the plan saves any.
    pub kept: Option<LocalId>,
    /// The cache of a session.
    pub cache: CacheShape,
}

/// The head of a plan.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    /// The logits {vocab, rows}.
    pub logits: Tensor,
    /// The steps that sample the next tokens from them.
    pub sampling: SamplingSteps,
}

impl BatchPlan {
    /// The head.
    ///
    /// # Errors
    /// [`Error::Argument`] for a plan without a head.
    pub fn head(&self) -> Result<&Head> {
        let (expected, found) =
            ("a plan with the logits of every row".to_owned(), "one with the last row's logits".to_owned());
        self.head.as_ref().ok_or(Error::Argument { argument: "plan", expected, found })
    }

    /// The end of the steps before sampling.
    pub fn end(&self) -> usize {
        self.head.map_or(self.plan.steps.len(), |head| head.sampling.first)
    }

    /// Whether attention expands the latents of all earlier tokens to keys and values, again in every batch.
    pub fn expands_kv(&self) -> bool {
        self.plan.steps.iter().any(|step| expands_kv(step.kernel))
    }

    /// The local buffers that the plan shares with the plan of a single row: the index here, and the index there.
    pub fn shared(&self, alone: &Self) -> Vec<(LocalId, LocalId)> {
        let states = [Plan::SAMPLED, Plan::PAGES, Plan::SAMPLING].map(|local| (local, local));
        let last = self.last.zip(alone.hidden.buffer.local().ok());
        self.plan.caches().zip(alone.plan.caches()).chain(states).chain(last).collect()
    }

    /// Fails, before anything is allocated, if a device cannot allocate or bind a buffer of the plan. Weights are
    /// checked first, because a smaller context does not help if one of them is too large.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::ContextTooLarge`].
    pub(crate) fn check(&self, device: &Capabilities) -> Result<()> {
        self.plan.check_weights(device.max_binding)?;
        let caches = self.plan.locals.iter().filter(|local| local.purpose == Purpose::Cache);
        self.cache.check_bytes(caches.map(|cache| cache.bytes).max().unwrap_or(0), device)?;
        self.plan.check_bindings(device.max_binding)
    }
}

/// Plans a single row for the model in `file`, with a cache as given. Reads the file's header only.
///
/// # Errors
/// The errors of [`ModelWeights::resolve`], and [`Error::Shape`] for shapes that no grid has.
pub fn plan_token(file: &Gguf, config: &Config, cache: CacheShape, target: &Target) -> Result<BatchPlan> {
    plan_alone(&ModelWeights::resolve(file, config)?, config, cache, target)
}

/// Plans a single row for a model with these weights, as [`plan_token`] does.
///
/// # Errors
/// See [`plan_token`].
pub(crate) fn plan_alone(
    weights: &Arc<ModelWeights>,
    config: &Config,
    cache: CacheShape,
    target: &Target,
) -> Result<BatchPlan> {
    cache.check(config)?;
    let builder = builder_alone(config, target);
    let planned = plan(builder, weights, config, cache, Outputs::All)?;
    check_tilings(&planned.plan, target)?;
    Ok(planned)
}

/// Plans batches of a shape, with the weights of the plan of a single row.
///
/// # Errors
/// See [`plan_token`].
pub fn plan_batch(config: &Config, token: &BatchPlan, target: &Target, shape: BatchShape) -> Result<BatchPlan> {
    plan(builder_for(config, target, shape, token.cache), &token.weights, config, token.cache, shape.outputs)
}

/// The builder of plans of a single row.
pub(super) fn builder_alone(config: &Config, target: &Target) -> Builder {
    Builder::new(&for_steps(target, true), config.rotary / 2)
}

/// The builder of plans for batches of a shape.
pub(super) fn builder_for(config: &Config, target: &Target, shape: BatchShape, cache: CacheShape) -> Builder {
    let most = match shape.outputs {
        Outputs::LastOfEach { .. } => 0,
        Outputs::Last => target.choices.few_rows.unwrap_or(few_of_prompt(target)).min(FEW_TOKENS),
        Outputs::All => target.choices.few_rows.unwrap_or(FEW_TOKENS).min(FEW_TOKENS),
        Outputs::Sequences | Outputs::Verified => FEW_TOKENS, // which tiles cannot compute
    };
    let few = shape.rows <= most && serves_few(config);
    let builder = Builder::for_rows(&for_steps(target, few), config.rotary / 2, shape.rows)
        .with_depth(shape.cached(cache.context))
        .for_few(few)
        .for_sequences(shape.outputs == Outputs::Sequences);
    if let Outputs::LastOfEach { each } = shape.outputs { builder.for_prompts(each) } else { builder }
}

/// The target of plans of few rows, or of tiles: with matrices only where they were not measured to be slower.
fn for_steps(target: &Target, few: bool) -> Target {
    let without = if few { target.choices.few_without_matrices } else { target.choices.prompts_without_matrices };
    Target { matrices: if without { Matrices::None } else { target.matrices }, ..target.clone() }
}

fn plan(
    builder: Builder,
    weights: &Arc<ModelWeights>,
    config: &Config,
    cache: CacheShape,
    outputs: Outputs,
) -> Result<BatchPlan> {
    let mut b = builder.with_weights(&weights.table.weights);
    let hidden = layers(&mut b, weights, config, cache)?;
    let mut kept = None;
    if weights.block.is_some() && (b.rows() == 1 || matches!(outputs, Outputs::Verified | Outputs::Sequences)) {
        b.leave_layers();
        let (saved, local) = saved_states(&mut b, KEPT, config);
        b.keep_hidden("keep_hidden", &hidden, &weights.output_norm, &saved, 0)?;
        kept = Some(local);
    }
    b.head();
    let (mut last, mut head) = (None, None);
    match outputs {
        Outputs::LastOfEach { .. } => {}
        Outputs::Last => {
            let y = b.tensor("last", [config.width, 1]);
            b.last_token("last", &hidden, &y)?;
            last = Some(y.buffer.local()?);
        }
        Outputs::All | Outputs::Sequences | Outputs::Verified => {
            let logits = logits(&mut b, weights, &hidden)?;
            head = Some(Head { logits, sampling: sample_tokens(&mut b, &logits, outputs)? });
        }
    }
    Ok(BatchPlan { plan: b.finish(), weights: weights.clone(), hidden, last, head, outputs, kept, cache })
}

/// The most rows of a batch that the kernels of a single row compute, each of them all rows at once.
pub const FEW_TOKENS: usize = 32;

/// The same for prompts: with products of 16 x 16 matrices, tiles are faster from fewer rows on.
fn few_of_prompt(target: &Target) -> usize {
    let tiles = target.matrices == Matrices::Sixteen && target.team == Team::Subgroup;
    if tiles { FEW_TOKENS / 2 } else { FEW_TOKENS }
}

/// The size in bytes of [`Plan::SAMPLED`] for `sequences` sequences. Their tokens are followed by those that a
/// verification sampled, and by the drafts of each sequence.
pub(crate) fn sampled_bytes(sequences: usize) -> u64 {
    (sequences as u64)
        .saturating_mul(1 + DRAFTING as u64)
        .saturating_add(VERIFIED_ROWS as u64)
        .saturating_mul(4 * Plan::SAMPLED_WORDS as u64)
}

/// How many drafts of a sequence a step can verify.
pub(crate) fn most_drafts(config: &Config) -> usize {
    if serves_few(config) { MAX_DRAFTS } else { 0 }
}

/// The most sequences that the rows of a batch can be of. The kernels of many rows compute those of one sequence only.
pub(crate) fn most_sequences(config: &Config) -> usize {
    if serves_few(config) { FEW_TOKENS } else { 1 }
}

/// Whether the kernels of few rows can compute a model. They can if the concatenated vectors of all heads are whole
/// groups.
pub(super) fn serves_few(config: &Config) -> bool {
    let whole = |width: usize| (width * config.heads).is_multiple_of(GROUP);
    whole(config.key_width) && whole(config.value_width)
}

/// Fails if a tiling is chosen for a step that the plan does not have, or on a target with only one tiling.
fn check_tilings(plan: &Plan, target: &Target) -> Result<()> {
    let chosen = &target.choices.tilings;
    if let (Team::Workgroup, [asked, ..]) = (target.team, chosen.as_slice()) {
        let expected = "no tiling: without subgroup operations there is only one".to_owned();
        return Err(Error::Argument { argument: "tiling", expected, found: format!("`{}`", asked.step) });
    }
    let is = |label: &str, step: &str| label == step || label.split_once('.').is_some_and(|(_, rest)| rest == step);
    let unknown = |asked: &&StepChoice<Tiling>| !plan.steps.iter().any(|planned| is(&planned.label, &asked.step));
    let Some(asked) = chosen.iter().find(unknown) else { return Ok(()) };
    let expected = "the name of a step of the plan without its layer, such as `moe.down`".to_owned();
    Err(Error::Argument { argument: "tiling", expected, found: format!("`{}`", asked.step) })
}
