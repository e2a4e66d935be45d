//! The first half of a mixture of experts as in [`moe_gate_up`](super::moe_gate_up), for batches of more rows: each
//! group of an expert's weights is decoded once for several of the rows that selected the expert.

use super::Kernel;
use super::matvec::{Input, MatvecProduct};
use super::moe_gate_up::{GateUp, StepParts};
use super::places::Places;
use super::route::Routed;
use crate::plan::{Builder, Tensor};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/moe_gate_up_grouped.wgsl");

pub(super) const KERNEL: Kernel = Kernel { name: "moe_gate_up_grouped", op: OP, params: &[], matrices: &[] };

/// The sums of a team's row: one of gate and one of up.
const SUMS_PER_ROW: usize = 2;
/// The rows of a team. With two rows, 32 conversations on an H200 generate 2048 tokens a second instead of 2113, and 16
/// conversations 1683 instead of 1736.
const TEAM_ROWS: usize = 1;
/// The maximum number of rows in a batch, all of which may select the same expert.
const MAX_BATCH: usize = 64;

impl Builder {
    /// Whether the plan computes the rows of an expert together. The experts are then selected in a separate step.
    pub(super) fn groups_experts(&self, label: &str, weights: &GateUp<'_>, top_k: usize, x: &Input) -> bool {
        // Whichever buffer the output is rounded to, the product is divided in the same way.
        let rounded = x.rounded.filter(|_| weights.is_rounded(self));
        places(self, &weights.product(self, label, top_k, x, rounded)).is_some()
    }
}

/// How this kernel computes `product`; `None` if it cannot.
pub(super) fn places<'a>(plan: &Builder, product: &'a MatvecProduct<'a>) -> Option<Places<'a>> {
    let able = product.epilogue.rounded.is_some() && plan.rows() <= MAX_BATCH;
    let slots = plan.grouping().filter(|_| able)?.slots;
    Places::of(plan, product, (&KERNEL, SUMS_PER_ROW, TEAM_ROWS), slots)
}

/// The step for experts that were selected, if this kernel can compute it.
pub(super) fn step(
    plan: &Builder,
    product: &MatvecProduct<'_>,
    routed: &Routed,
    experts: usize,
    y: &Tensor,
) -> Option<StepParts> {
    let places = places(plan, product)?;
    let gated = source!("lib/gated_places.wgsl");
    let variant = places
        .variant(plan, product)
        .constant("TOP_K", "k", routed.ids.shape[0])
        .constant("MAX_SLOTS", "", MAX_BATCH)
        .constant("Y_STRIDE", "y", y.stride)
        .file(source!("lib/expert_slots.wgsl"))
        .file_for("w", gated)
        .file_for("shared", gated)
        .file(source!("lib/activations.wgsl"));
    let mut bindings = product.bindings(plan);
    bindings.extend(plan.bound_count());
    bindings
        .extend([("ids", &routed.ids), ("weights", &routed.weights), ("y", y)].map(|(n, t)| plan.bound(n, t.buffer)));
    let grid = places.grid(product.rows, plan.rows().div_ceil(places.places) + experts);
    Some(StepParts { kernel: &KERNEL, variant: plan.count_files(variant), bindings, grid })
}
