//! The plans of the multi-token-prediction block, which guesses tokens: one more layer, whose input is made from the
//! model's hidden states.
//!
//! Row p of the block takes the model's hidden state at position p and the token at p + 1, and predicts the token at
//! p + 2. Its KV rows lie in a cache of their own, in the same pages as the model's. The block computes a row for every
//! token of a sequence, and then one draft after another: from the second draft on, its own hidden state replaces the
//! model's.

use super::attention::CacheShape;
use super::batch_plan::{BatchShape, builder_alone, builder_for};
use super::graph::{STREAM, layer};
use super::weights::{BlockWeights, ModelWeights};
use super::{Config, PromptOptions};
use crate::error::{Error, Result};
use crate::kernels::{HiddenStates, Input, KEPT_ROWS, Kept, MAX_DRAFTS, Residual, splits};
use crate::plan::{BufferRef, Builder, LocalId, Plan, Target, Tensor};
use std::sync::Arc;

/// A plan of the block.
pub struct DraftPlan {
    /// The steps.
    pub plan: Plan,
    /// In plans of several rows that read it, the buffer of the model's hidden states: see [`KEPT_ROWS`].
    pub kept: Option<LocalId>,
    /// The buffer of the block's own hidden states, each at the index of the row that continues from it.
    pub drafted: LocalId,
    /// How it drafts, if it does.
    pub drafting: Option<Drafting>,
}

/// How a plan makes drafts, one for each row.
#[derive(Debug, Clone, Copy)]
pub struct Drafting {
    /// The batch of the rows that drafts may need: see [`Builder::advance`].
    pub candidates: LocalId,
    /// The first step of the block. The steps before it make the batch.
    pub block: usize,
    /// The first step after the block: the head, and the choice of the draft.
    pub head: usize,
    /// The logits {vocab, rows} of the drafts.
    pub logits: Tensor,
}

impl DraftPlan {
    /// How it makes drafts.
    ///
    /// # Errors
    /// [`Error::Argument`] for a plan that makes none.
    pub fn drafting(&self) -> Result<Drafting> {
        let (expected, found) = ("a plan that makes drafts".to_owned(), "one that makes none".to_owned());
        self.drafting.ok_or(Error::Argument { argument: "plan", expected, found })
    }
}

/// Where a plan of several rows finds the model's hidden states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DraftInputs {
    /// In the residual stream that the model's plan of the same rows has left.
    Stream,
    /// In the buffer in which the model's plans save them.
    Kept,
}

/// The shapes of the block's plans of several rows of a sequence, for a context of `context` tokens.
pub(super) fn block_shapes(prompt: PromptOptions, context: usize) -> impl Iterator<Item = (BatchShape, DraftInputs)> {
    let stream = BatchShape::all(prompt, context).map(|shape| (shape, DraftInputs::Stream));
    stream.chain(BatchShape::kept(context).map(|shape| (shape, DraftInputs::Kept)))
}

/// The names of the buffers of the model's hidden states, and of the block's own.
pub(super) const KEPT: &str = "kept";
const DRAFTED: &str = "drafted";

/// The most rows of a sequence that drafts may continue from, and the drafts themselves.
pub(crate) const CANDIDATES: usize = 2 * (1 + MAX_DRAFTS);

/// Adds a buffer of hidden states to a plan.
pub(super) fn saved_states(b: &mut Builder, name: &str, config: &Config) -> (Kept, LocalId) {
    let local = b.setting(name, (4 * config.width * KEPT_ROWS) as u64);
    (Kept { buffer: BufferRef::Local(local), width: config.width }, local)
}

/// Plans the block for a row alone, or for a row of each of several sequences, with the drafts.
///
/// # Errors
/// [`Error::Argument`] for a model without a block; [`Error::Shape`] for shapes that no grid has.
pub fn plan_drafting(
    weights: &Arc<ModelWeights>,
    config: &Config,
    cache: CacheShape,
    target: &Target,
    shape: BatchShape,
) -> Result<DraftPlan> {
    let w = block_of(weights)?;
    let builder = match shape.rows {
        1 => builder_alone(config, target),
        _ => builder_for(config, target, shape, cache),
    };
    let mut b = builder.with_weights(&weights.table.weights);
    let (saved, drafted) = saved_states(&mut b, DRAFTED, config);
    let candidates = b.advance("advance", CANDIDATES * shape.rows, splits(target, shape.rows))?.local()?;
    let block = b.steps();
    let y = compute(&mut b, w, config, HiddenStates::Kept(saved), cache)?;
    b.keep_hidden("draft_norm", &y, &w.head_norm, &saved, 1)?;
    let head = b.steps();
    let hidden = b.kept_hidden("draft_hidden", &saved, 1)?;
    let logits = b.linear("draft_output", &w.output, &Input::from(&hidden))?;
    let slices = b.slice_max("draft_slices", &logits)?;
    b.draft("draft", &slices)?;
    let drafting = Drafting { candidates, block, head, logits };
    Ok(DraftPlan { plan: b.finish(), kept: None, drafted, drafting: Some(drafting) })
}

/// Plans the block for batches of a shape.
///
/// # Errors
/// See [`plan_drafting`].
pub fn plan_drafted_rows(
    weights: &Arc<ModelWeights>,
    config: &Config,
    cache: CacheShape,
    target: &Target,
    (shape, inputs): (BatchShape, DraftInputs),
) -> Result<DraftPlan> {
    let w = block_of(weights)?;
    let mut b = builder_for(config, target, shape, cache).with_weights(&weights.table.weights);
    let (drafted_states, drafted) = saved_states(&mut b, DRAFTED, config);
    let mut kept = None;
    let states = match inputs {
        DraftInputs::Kept => {
            let (saved, local) = saved_states(&mut b, KEPT, config);
            kept = Some(local);
            HiddenStates::Kept(saved)
        }
        DraftInputs::Stream => {
            // Plans share buffers of the same name, so this is the model's stream.
            let stream = b.tensor(STREAM, [config.width, shape.rows]);
            HiddenStates::Rows(b.rms_norm("output_norm", &stream, &weights.output_norm)?)
        }
    };
    let y = compute(&mut b, w, config, states, cache)?;
    b.keep_hidden("draft_norm", &y, &w.head_norm, &drafted_states, 1)?;
    Ok(DraftPlan { plan: b.finish(), kept, drafted, drafting: None })
}

fn block_of(weights: &ModelWeights) -> Result<&BlockWeights> {
    weights.block.as_ref().ok_or_else(no_block)
}

/// The error for a model without a block.
pub(crate) fn no_block() -> Error {
    let (expected, found) = ("a model with a multi-token-prediction block".to_owned(), "one without".to_owned());
    Error::Argument { argument: "model", expected, found }
}

/// Appends the block without its last norm: y {width, rows}, from the hidden states and the tokens after the rows.
fn compute(
    b: &mut Builder,
    w: &BlockWeights,
    config: &Config,
    states: HiddenStates,
    cache: CacheShape,
) -> Result<Tensor> {
    b.layer(config.layers);
    // After a prompt nothing reads the model's values in these buffers, so the block reuses them. After a verification
    // the model's stream may still be read.
    let stream = if let HiddenStates::Rows(_) = states { STREAM } else { "eh_proj" };
    let [embedding, y] = ["attn_norm", stream].map(|name| b.tensor(name, [config.width, b.rows()]));
    b.get_next_rows_into("embed_next", &w.embedding, &embedding)?;
    let both = b.draft_input("draft_input", (&embedding, &w.embedding_norm), (states, &w.hidden_norm))?;
    b.linear_into("eh_proj", &w.projection, &Input::from(&both), &y)?;
    layer(b, &w.layer, config, &Residual::from(y), &w.head_norm, cache)?;
    b.head();
    Ok(y)
}
