//! The feed-forward of a layer: dense, or a mixture of experts beside shared ones.

use super::weights::Weights;
use super::{Config, Experts};
use crate::error::Result;
use crate::plan::{Builder, Tensor};

/// x += down · (silu(gate · h) ⊙ up · h).
pub(super) fn dense(
    b: &mut Builder,
    w: &mut Weights<'_>,
    config: &Config,
    block: &str,
    h: &Tensor,
    x: &Tensor,
) -> Result<()> {
    swiglu(b, w, block, ["ffn_gate", "ffn_up", "ffn_down"], config.dense_width, h, x)
}

/// x += down · (silu(gate · h) ⊙ up · h), with tensors of the given stems and `hidden` values between.
fn swiglu(
    b: &mut Builder,
    w: &mut Weights<'_>,
    block: &str,
    [gate, up, down]: [&str; 3],
    hidden: usize,
    h: &Tensor,
    x: &Tensor,
) -> Result<()> {
    let width = x.shape[0];
    let name = |stem: &str| format!("{block}.{stem}.weight");
    let gate_weight = w.matrix(b, &name(gate), width, hidden)?;
    let up_weight = w.matrix(b, &name(up), width, hidden)?;
    let y = b.gate_up(gate, &gate_weight, &up_weight, h)?;
    let down_weight = w.matrix(b, &name(down), hidden, width)?;
    b.mul_mv_add(down, &down_weight, &y, x)
}

/// x += Σ weight · expert(h) over the chosen experts, + shared(h).
pub(super) fn experts(
    b: &mut Builder,
    w: &mut Weights<'_>,
    config: &Config,
    experts: &Experts,
    block: &str,
    h: &Tensor,
    x: &Tensor,
) -> Result<()> {
    let (width, count) = (config.width, experts.count);
    let router = w.matrix(b, &format!("{block}.ffn_gate_inp.weight"), width, count)?;
    let logits = b.mul_mv("moe.router", &router, h)?;
    let bias = w.vector_or_zeros(b, &format!("{block}.exp_probs_b.bias"), count)?;
    let routed = b.route("moe.route", &logits, &bias, experts.routing)?;

    let (gate, up) = w.gate_up_experts(b, block, [width, experts.width, count])?;
    let y = b.gate_up_id("moe.gate_up", &gate, &up, &routed.ids, h)?;
    let down = w.matrices(b, &format!("{block}.ffn_down_exps.weight"), [experts.width, width, count])?;
    let y = b.mul_mv_id("moe.down", &down, &routed.ids, &y)?;
    b.moe_sum("moe.sum", &routed.weights, &y, x)?;
    if experts.shared_width > 0 {
        let stems = ["ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"];
        swiglu(b, w, block, stems, experts.shared_width, h, x)?;
    }
    Ok(())
}
