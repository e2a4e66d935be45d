//! A chunk of tokens' way through the model, as a plan: of few of them the steps of a token, each for all; of many,
//! steps of their own, by tiles.

use super::token_plan::{TokenPlan, layers, output};
use super::weights::Weights;
use super::{Config, PromptOptions};
use crate::error::Result;
use crate::gguf::Gguf;
use crate::plan::{Builder, Plan, Target};
use crate::quant::GROUP;

/// What a chunk's plan is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BatchShape {
    /// Tokens there is room for.
    pub tokens: usize,
    /// Of which of them logits are wanted.
    pub outputs: Outputs,
    /// Tokens in the cache before the chunk, at most. The deeper it is, the longer attention takes, and into the more
    /// parts it is cut.
    pub depth: usize,
}

/// Depths that plans are made for, and the context.
const DEPTHS: [usize; 3] = [1024, 16 << 10, 64 << 10];

impl BatchShape {
    /// Of chunks that there is room for `tokens` tokens of, after `before` others in a context of so many.
    pub fn of(tokens: usize, outputs: Outputs, before: usize, context: usize) -> Self {
        let depth = depths(tokens, context).find(|depth| *depth >= before);
        Self { tokens, outputs, depth: depth.unwrap_or(before) }
    }

    /// Tokens in the cache at most, those of the chunk among them.
    pub fn cached(&self, context: usize) -> usize {
        self.depth.saturating_add(self.tokens).min(context.max(self.tokens))
    }

    /// Those of all chunks of prompts in a context of so many tokens.
    pub fn all(options: PromptOptions, context: usize) -> impl Iterator<Item = Self> {
        let rooms = options.rooms().filter(move |_| options.together() > 1);
        rooms.flat_map(move |tokens| {
            depths(tokens, context).map(move |depth| Self { tokens, outputs: Outputs::Last, depth })
        })
    }
}

/// The depths that plans with room for `tokens` tokens are made for. Few of them take no longer at the first depth than
/// at the second.
fn depths(tokens: usize, context: usize) -> impl Iterator<Item = usize> {
    let first = usize::from(tokens <= FEW_TOKENS);
    DEPTHS.into_iter().skip(first).take_while(move |depth| *depth < context).chain([context])
}

/// Of which tokens of a chunk logits are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outputs {
    /// The last one's: left to the head of the token's plan.
    Last,
    /// Every one's.
    All,
}

/// The plan of a chunk, and where its inputs and outputs are.
pub struct BatchPlan {
    /// The steps. Those from [`Plan::head`] on leave the last token's hidden values for the head of the token's plan.
    pub plan: Plan,
    /// The local buffers that are those of the token's plan: here, and there.
    pub shared: Vec<(usize, usize)>,
    /// The local buffer of what the layers leave of every token {width}, and how many values one token's start after the
    /// one's before.
    pub hidden: (usize, usize),
    /// The local buffer of the logits {vocab} of every token, if they are wanted, and how many values one token's start
    /// after the one's before.
    pub logits: Option<(usize, usize)>,
}

/// Plans chunks of a shape, over the weights and the caches of a token's plan.
///
/// # Errors
/// As [`plan_token`](super::plan_token).
pub fn plan_batch(
    file: &Gguf,
    config: &Config,
    token: &TokenPlan,
    target: Target,
    shape: BatchShape,
) -> Result<BatchPlan> {
    let few = shape.tokens <= FEW_TOKENS && serves_few(config);
    let mut b = Builder::for_chunk(target, config.rotary / 2, shape.tokens)
        .with_weights(&token.plan.weights)
        .with_cached(shape.cached(token.cache.context))
        .for_few(few);
    let mut weights = Weights::known(file, &token.sources);
    let (b, w) = (&mut b, &mut weights);

    let embedding = w.matrix(b, "token_embd.weight", config.width, config.vocab)?;
    let x = b.get_rows("embed", &embedding)?;
    let norm = layers(b, w, config, &x, token.cache)?;

    b.head();
    let last = b.tensor("last", [config.width, 1]);
    b.last_token("last", &x, &last)?;
    let hidden = (x.buffer.local()?, x.stride);
    let logits = match shape.outputs {
        Outputs::Last => None,
        Outputs::All => {
            let logits = output(b, w, config, &x, &norm)?;
            Some((logits.buffer.local()?, logits.pitch))
        }
    };
    let plan = std::mem::replace(b, Builder::new(target, 1)).finish();
    let shared = shared(&plan, last.buffer.local()?, token);
    Ok(BatchPlan { plan, shared, hidden, logits })
}

/// Tokens up to which a chunk runs in the steps of a token, each for all of them.
pub const FEW_TOKENS: usize = 32;

/// Whether the kernels of few rows serve a model: where heads' vectors, which lie side by side, make up whole groups.
fn serves_few(config: &Config) -> bool {
    let whole = |width: usize| (width * config.heads).is_multiple_of(GROUP);
    whole(config.key_width) && whole(config.value_width)
}

/// The caches, layer by layer, and where the head of the token's plan reads.
fn shared(plan: &Plan, last: usize, token: &TokenPlan) -> Vec<(usize, usize)> {
    plan.caches().zip(token.plan.caches()).chain([(last, token.hidden), (Plan::PAGES, Plan::PAGES)]).collect()
}
