//! The feed-forward of a layer: dense, or a mixture of experts beside shared ones.

use super::weights::Weights;
use super::{Config, Experts};
use crate::error::Result;
use crate::kernels::{Choice, GateUp, Input, Norm, Stream};
use crate::plan::{Builder, Tensor, Weight};

/// x += down · (silu(gate · h) ⊙ up · h), for h the stream x under its norm; `next` is the norm that follows.
pub(super) fn dense(
    b: &mut Builder,
    w: &mut Weights<'_>,
    config: &Config,
    block: &str,
    (x, h, next): (&Tensor, &Input, &Norm),
) -> Result<Stream> {
    let (width, hidden) = (config.width, config.dense_width);
    let name = |stem: &str| format!("{block}.{stem}.weight");
    let gate = w.matrix(b, &name("ffn_gate"), width, hidden)?;
    let up = w.matrix(b, &name("ffn_up"), width, hidden)?;
    let y = b.gate_up("ffn_gate", &gate, &up, h)?;
    let down = w.matrix(b, &name("ffn_down"), hidden, width)?;
    b.mul_mv_add("ffn_down", &down, &y, x, next)
}

/// x += Σ weight · expert(h) over the chosen experts, + shared(h), as [`dense`].
pub(super) fn experts(
    b: &mut Builder,
    w: &mut Weights<'_>,
    config: &Config,
    experts: &Experts,
    block: &str,
    (x, h, next): (&Tensor, &Input, &Norm),
) -> Result<Stream> {
    let (width, count, shared) = (config.width, experts.count, experts.shared_width);
    let name = |stem: &str| format!("{block}.{stem}.weight");
    let router = w.matrix(b, &name("ffn_gate_inp"), width, count)?;
    let logits = b.mul_mv("moe.router", &router, h)?;
    let bias = w.vector_or_zeros(b, &format!("{block}.exp_probs_b.bias"), count)?;
    let choice = Choice { logits: &logits, bias: &bias, routing: experts.routing };

    let (gate, up) = w.gate_up_experts(b, block, [width, experts.width, count])?;
    let down = w.matrices(b, &name("ffn_down_exps"), [experts.width, width, count])?;
    if shared == 0 {
        chosen(b, &choice, [&gate, &up, &down], h, x)?;
        return Ok(Stream::from(*x));
    }
    let shared_gate = w.matrix(b, &name("ffn_gate_shexp"), width, shared)?;
    let shared_up = w.matrix(b, &name("ffn_up_shexp"), width, shared)?;
    let shared_down = w.matrix(b, &name("ffn_down_shexp"), shared, width)?;
    let halves = GateUp { gate: &gate, up: &up, shared_gate: &shared_gate, shared_up: &shared_up };
    if b.target().fusions.experts && halves.buffers() <= b.target().buffers {
        let hidden = b.moe_gate_up("moe.gate_up", &halves, &choice, h)?;
        return b.moe_down("moe.down", &down, &shared_down, &hidden, x, next);
    }
    let y = b.gate_up("ffn_gate_shexp", &shared_gate, &shared_up, h)?; // before x changes, which h may be
    chosen(b, &choice, [&gate, &up, &down], h, x)?;
    b.mul_mv_add("ffn_down_shexp", &shared_down, &y, x, next)
}

/// x += Σ weight · expert(h) over the chosen experts, a step at a time.
fn chosen(b: &mut Builder, choice: &Choice<'_>, [gate, up, down]: [&Weight; 3], h: &Input, x: &Tensor) -> Result<()> {
    let routed = b.route("moe.route", choice.logits, choice.bias, choice.routing)?;
    let y = b.gate_up_id("moe.gate_up", gate, up, &routed.ids, h)?;
    let y = b.mul_mv_id("moe.down", down, &routed.ids, &Input::from(&y))?;
    b.moe_sum("moe.sum", &routed.weights, &y, x)
}
