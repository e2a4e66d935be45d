//! One token's way through the model, as a plan.

use super::Config;
use super::attention::{CacheShape, attention};
use super::moe::{dense, experts};
use super::sampling_plan::sample_token;
use super::weights::{WeightSource, Weights};
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::gpu::Capabilities;
use crate::kernels::{Norm, Residual};
use crate::plan::{Builder, PAGE, Plan, Purpose, Target, Team, Tensor, TilingOverride};

/// The plan of one token, and where its inputs and outputs are.
pub struct TokenPlan {
    /// The steps. Those from [`Plan::head`] on are needed only where logits are wanted.
    pub plan: Plan,
    /// Where each weight comes from.
    pub sources: Vec<WeightSource>,
    /// The local buffer of what the layers leave {width}, which the head reads.
    pub hidden: usize,
    /// The local buffer of the logits {vocab}.
    pub logits: usize,
    /// How the next token is chosen.
    pub sampling: SamplingSteps,
    /// What the caches hold.
    pub cache: CacheShape,
}

impl TokenPlan {
    /// Refuses, before anything is made, what a device cannot hold or bind in one piece. The weights come first: with
    /// one that is too large, no context helps.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::ContextTooLarge`].
    pub(crate) fn check(&self, device: &Capabilities) -> Result<()> {
        self.plan.check_weights(device.max_binding)?;
        self.check_context(device.max_binding.min(device.max_buffer))?;
        self.plan.check_bindings(device.max_binding)
    }

    fn check_context(&self, allowed: u64) -> Result<()> {
        let caches = self.plan.locals.iter().filter(|local| local.purpose == Purpose::Cache);
        let (context, bytes) = (self.cache.context, caches.map(|cache| cache.bytes).max().unwrap_or(0));
        if bytes <= allowed {
            return Ok(());
        }
        let page = (bytes / context.div_ceil(PAGE).max(1) as u64).max(1);
        let most = usize::try_from(allowed / page).unwrap_or(usize::MAX).saturating_mul(PAGE);
        if most == 0 {
            return Ok(()); // no context helps where a page does not fit: the buffers are named one by one
        }
        Err(Error::ContextTooLarge { context, bytes, allowed, most })
    }
}

/// The steps that choose the next token from the logits, to the last of the plan.
#[derive(Debug, Clone, Copy)]
pub struct SamplingSteps {
    /// The first one.
    pub first: usize,
    /// The one that only filters need.
    pub histogram: usize,
    /// The local buffer that a [`Sampling`](crate::kernels::Sampling) is written to.
    pub params: usize,
}

/// Plans one token of the model in `file`, with a cache as given. Reads the file's header only.
///
/// # Errors
/// [`Error::Tensor`](crate::Error::Tensor) for a tensor that is missing or has a shape other than the
/// hyper-parameters ask for, [`Error::Unsupported`](crate::Error::Unsupported) for one whose type is unknown here.
pub fn plan_token(file: &Gguf, config: &Config, cache: CacheShape, target: Target) -> Result<TokenPlan> {
    cache.check()?;
    let mut b = Builder::new(target, config.rotary / 2);
    let mut weights = Weights::new(file);
    let w = &mut weights;

    let embedding = w.matrix(&mut b, "token_embd.weight", config.width, config.vocab)?;
    let x = b.get_rows("embed", &embedding)?;
    let norm = layers(&mut b, w, config, &x, cache)?;

    b.head();
    let logits = output(&mut b, w, config, &x, &norm)?;
    let sampling = sample_token(&mut b, &logits)?;
    let (hidden, logits) = (x.buffer.local()?, logits.buffer.local()?);
    let plan = b.finish();
    check_tiling_overrides(&plan, target)?;
    Ok(TokenPlan { plan, sources: weights.sources, hidden, logits, sampling, cache })
}

/// The layers, onto the embeddings x {width, tokens}, and the norm that follows on them.
pub(super) fn layers(
    b: &mut Builder,
    w: &mut Weights<'_>,
    config: &Config,
    x: &Tensor,
    cache: CacheShape,
) -> Result<Norm> {
    let mut stream = Residual::from(*x);
    let mut norm = first_norm(b, w, config, 0)?;
    for index in 0..config.layers {
        b.layer(index);
        let block = format!("blk.{index}");
        let h = b.normed("attn_norm", &stream, &norm)?;
        norm = norm_of(b, w, config, &format!("{block}.ffn_norm.weight"))?;
        stream = attention(b, w, config, &block, (x, &h, &norm), cache)?;
        let h = b.normed("ffn_norm", &stream, &norm)?;
        norm = first_norm(b, w, config, index + 1)?;
        stream = match &config.experts {
            Some(shape) if index >= config.leading_dense => experts(b, w, config, shape, &block, (x, &h, &norm))?,
            _ => dense(b, w, config, &block, (x, &h, &norm))?,
        }
    }
    Ok(norm)
}

/// The logits {vocab, tokens} of what the layers left.
pub(super) fn output(b: &mut Builder, w: &mut Weights<'_>, config: &Config, x: &Tensor, norm: &Norm) -> Result<Tensor> {
    let h = b.normed("output_norm", &Residual::from(*x), norm)?; // which a chunk of tokens may have left as well
    let output = w.output(b, config)?;
    b.linear("output", &output, &h)
}

/// An error if products are to be divided otherwise that the plan has not, or where none can be.
fn check_tiling_overrides(plan: &Plan, target: Target) -> Result<()> {
    if let (Team::Workgroup, [division, ..]) = (target.team, target.tiling_overrides) {
        let expected = "none: without subgroup operations there is one tiling".to_owned();
        return Err(Error::Argument { argument: "tiling", expected, found: format!("`{}`", division.step) });
    }
    let is = |label: &str, step: &str| label == step || label.split_once('.').is_some_and(|(_, rest)| rest == step);
    let unknown = |step: &&TilingOverride| !plan.steps.iter().any(|planned| is(&planned.label, &step.step));
    let Some(division) = target.tiling_overrides.iter().find(unknown) else { return Ok(()) };
    let expected = "a step of the plan without its layer, as moe.down".to_owned();
    Err(Error::Argument { argument: "tiling", expected, found: format!("`{}`", division.step) })
}

/// The norm that a layer begins with; behind the last one, that of the head.
fn first_norm(b: &mut Builder, w: &mut Weights<'_>, config: &Config, layer: usize) -> Result<Norm> {
    let name =
        if layer < config.layers { format!("blk.{layer}.attn_norm.weight") } else { "output_norm.weight".into() };
    norm_of(b, w, config, &name)
}

fn norm_of(b: &mut Builder, w: &mut Weights<'_>, config: &Config, name: &str) -> Result<Norm> {
    Ok(Norm { weight: w.vector(b, name, config.width)?, epsilon: config.epsilon })
}
