//! The feed-forward of a layer, of a chunk of tokens.

use super::weights::Weights;
use super::{Config, Experts};
use crate::error::Result;
use crate::kernels::{self, Router};
use crate::plan::{Batch, Builder};

/// x += down · (silu(gate · h) ⊙ up · h).
pub(super) fn dense(
    b: &mut Builder,
    w: &mut Weights<'_>,
    config: &Config,
    block: &str,
    h: &Batch,
    x: &Batch,
) -> Result<()> {
    let weights = w.dense(b, config, block)?;
    let y = b.gate_up_mm("ffn_gate", &weights.gate, &weights.up, h)?;
    b.mul_mm_add("ffn_down", &weights.down, &y, x)
}

/// x += Σ weight · expert(h) over the chosen experts, + shared(h).
pub(super) fn experts(
    b: &mut Builder,
    w: &mut Weights<'_>,
    config: &Config,
    experts: &Experts,
    block: &str,
    h: &Batch,
    x: &Batch,
) -> Result<()> {
    let weights = w.mixture(b, config, experts, block)?;
    let logits = b.mul_mm("moe.router", &weights.router, h)?.vectors()?;
    let router = Router { logits: &logits, bias: &weights.bias, routing: experts.routing };
    let matrices = &weights.experts;
    let matrices = kernels::ExpertWeights { gate: &matrices.gate, up: &matrices.up, down: &matrices.down };
    b.experts_mm("moe", &matrices, &router, h, x)?;
    let Some(shared) = &weights.shared else { return Ok(()) };
    let y = b.gate_up_mm("ffn_gate_shexp", &shared.gate, &shared.up, h)?;
    b.mul_mm_add("ffn_down_shexp", &shared.down, &y, x)
}
