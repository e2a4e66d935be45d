//! The feed-forward of a layer, of a chunk of tokens.

use super::weights::Weights;
use super::{Config, Experts};
use crate::error::Result;
use crate::kernels::{self, BatchChoice};
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
    let (width, hidden) = (config.width, config.dense_width);
    let name = |stem: &str| format!("{block}.{stem}.weight");
    let gate = w.matrix(b, &name("ffn_gate"), width, hidden)?;
    let up = w.matrix(b, &name("ffn_up"), width, hidden)?;
    let y = b.gate_up_mm("ffn_gate", &gate, &up, h)?;
    let down = w.matrix(b, &name("ffn_down"), hidden, width)?;
    b.mul_mm_add("ffn_down", &down, &y, x)
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
    let (width, count, shared) = (config.width, experts.count, experts.shared_width);
    let name = |stem: &str| format!("{block}.{stem}.weight");
    let router = w.matrix(b, &name("ffn_gate_inp"), width, count)?;
    let logits = b.mul_mm("moe.router", &router, h)?;
    let bias = w.vector_or_zeros(b, &format!("{block}.exp_probs_b.bias"), count)?;
    let choice = BatchChoice { logits: &logits, bias: &bias, routing: experts.routing };
    let (gate, up) = w.gate_up_experts(b, block, [width, experts.width, count])?;
    let down = w.matrices(b, &name("ffn_down_exps"), [experts.width, width, count])?;
    b.experts_mm("moe", &kernels::Experts { gate: &gate, up: &up, down: &down }, &choice, h, x)?;
    if shared == 0 {
        return Ok(());
    }
    let gate = w.matrix(b, &name("ffn_gate_shexp"), width, shared)?;
    let up = w.matrix(b, &name("ffn_up_shexp"), width, shared)?;
    let y = b.gate_up_mm("ffn_gate_shexp", &gate, &up, h)?;
    let down = w.matrix(b, &name("ffn_down_shexp"), shared, width)?;
    b.mul_mm_add("ffn_down_shexp", &down, &y, x)
}
