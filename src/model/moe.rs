//! The feed-forward of a layer: dense, or a mixture of experts beside shared ones.

use super::feed_forward::FeedForward;
use super::weights::Weights;
use super::{Config, Experts};
use crate::error::Result;
use crate::kernels::{GateUp, Input, Norm, Residual, Router};
use crate::plan::{Builder, Tensor};

/// x += down · (silu(gate · h) ⊙ up · h), for h the stream x under its norm; `next` is the norm that follows.
pub(super) fn dense(
    b: &mut Builder,
    w: &mut Weights<'_>,
    config: &Config,
    block: &str,
    (x, h, next): (&Tensor, &Input, &Norm),
) -> Result<Residual> {
    let weights = w.dense(b, config, block)?;
    let y = b.gate_up("ffn_gate", &weights.gate, &weights.up, h)?;
    b.mul_mv_add("ffn_down", &weights.down, &y, x, next)
}

/// x += Σ weight · expert(h) over the chosen experts, + shared(h), as [`dense`].
pub(super) fn experts(
    b: &mut Builder,
    w: &mut Weights<'_>,
    config: &Config,
    experts: &Experts,
    block: &str,
    (x, h, next): (&Tensor, &Input, &Norm),
) -> Result<Residual> {
    let weights = w.mixture(b, config, experts, block)?;
    let matrices = &weights.experts;
    let logits = b.mul_mv("moe.router", &weights.router, h)?;
    let router = Router { logits: &logits, bias: &weights.bias, routing: experts.routing };
    let Some(shared) = &weights.shared else {
        chosen(b, &router, matrices, h, x)?;
        return Ok(Residual::from(*x));
    };
    let halves = GateUp { gate: &matrices.gate, up: &matrices.up, shared_gate: &shared.gate, shared_up: &shared.up };
    if b.target().fusions.experts && halves.buffers() <= b.target().buffers {
        let hidden = b.moe_gate_up("moe.gate_up", &halves, &router, h)?;
        return b.moe_down("moe.down", &matrices.down, &shared.down, &hidden, x, next);
    }
    let y = b.gate_up("ffn_gate_shexp", &shared.gate, &shared.up, h)?; // before x changes, which h may be
    chosen(b, &router, matrices, h, x)?;
    b.mul_mv_add("ffn_down_shexp", &shared.down, &y, x, next)
}

/// x += Σ weight · expert(h) over the chosen experts, a step at a time.
fn chosen(b: &mut Builder, router: &Router<'_>, experts: &FeedForward, h: &Input, x: &Tensor) -> Result<()> {
    let routed = b.route("moe.route", router.logits, router.bias, router.routing)?;
    let y = b.gate_up_id("moe.gate_up", &experts.gate, &experts.up, &routed.ids, h)?;
    let y = b.mul_mv_id("moe.down", &experts.down, &routed.ids, &Input::from(&y))?;
    b.moe_sum("moe.sum", &routed.weights, &y, x)
}
