//! The feed-forward of a layer: dense, or a mixture of experts plus shared experts.

use super::weights::{GatedWeights, MixtureWeights};
use crate::error::Result;
use crate::kernels::{ExpertWeights, GateUp, Input, Norm, Residual, Router};
use crate::plan::{Builder, Tensor};

/// x += down · (silu(gate · h) ⊙ up · h), where h is the normed residual stream x. `next` is the norm that follows.
pub(super) fn dense(b: &mut Builder, w: &GatedWeights, (x, h, next): (&Tensor, &Input, &Norm)) -> Result<Residual> {
    let y = b.gated("ffn_gate", &w.gate, &w.up, h)?;
    b.linear_add("ffn_down", &w.down, &y, x, next)
}

/// x += Σ weight · expert(h) over the chosen experts, + shared(h); parameters as for [`dense`].
pub(super) fn experts(b: &mut Builder, w: &MixtureWeights, (x, h, next): (&Tensor, &Input, &Norm)) -> Result<Residual> {
    let GatedWeights { gate, up, down } = &w.experts;
    let logits = b.linear_summands("moe.router", &w.router, h)?;
    let router = Router { logits, bias: &w.bias, routing: w.routing };
    let chosen = w.experts.as_experts();
    let Some(shared) = &w.shared else {
        let slots = b.experts(&chosen, None, &router, h)?;
        b.moe_combine("moe.sum", &slots.routed.weights, &slots.y, x)?;
        return Ok(Residual::from(*x));
    };
    let halves = GateUp { gate, up, shared_gate: &shared.gate, shared_up: &shared.up };
    if b.fuses_experts(&halves) {
        let hidden = b.experts_gate_up(&halves, &router, h)?;
        return b.moe_down("moe.down", down, &shared.down, &hidden, x, next);
    }
    let joined = shared.as_experts();
    if b.joins_experts(&chosen, &joined) {
        let slots = b.experts(&chosen, Some(&joined), &router, h)?;
        return b.add_experts("moe.sum", &slots, x, next);
    }
    let y = b.gated("ffn_gate_shexp", &shared.gate, &shared.up, h)?;
    let slots = b.experts(&chosen, None, &router, h)?; // before x changes, because h may be x
    b.linear_add_with("ffn_down_shexp", &shared.down, &y, x, next, Some(&slots))
}

impl GatedWeights {
    fn as_experts(&self) -> ExpertWeights<'_> {
        ExpertWeights { gate: &self.gate, up: &self.up, down: &self.down }
    }
}
