//! The first half of a mixture of experts as in [`moe_gate_up`](super::moe_gate_up), for batches of more rows: each
//! group of an expert's weights is decoded once for several of the rows that selected the expert.

use super::Kernel;
use super::matvec::{Feed, HALF, Input, MatvecProduct};
use super::moe_gate_up::GateUp;
use super::places::Places;
use super::route::Routed;
use crate::plan::{Bound, Builder, Tensor, VariantBuilder};
use crate::quant::Arithmetic;
use crate::wgsl::{Source, source};

const OP: Source = source!("op/moe_gate_up_grouped.wgsl");

pub(super) const KERNEL: Kernel = Kernel { name: "moe_gate_up_grouped", op: OP, params: &[], matrices: &[] };

/// The most rows of a team, each of which has a sum of either matrix. With two rows, 32 conversations on an H200
/// generate 2048 tokens a second instead of 2113, and 16 conversations 1683 instead of 1736.
const MOST_OWN: usize = 1;
/// The most rows of a batch, of which all may select the same expert.
const MOST_ROWS: usize = 64;

impl Builder {
    /// Whether a plan groups the slots of its experts, which a separate step selects then, if the product can.
    pub(super) fn groups_experts(&self, weights: &GateUp<'_>, x: &Input) -> bool {
        let product = MatvecProduct::new(&KERNEL, "", weights.roles(), Feed::Input(x));
        let rows = [weights.gate.shape[1], weights.shared_gate.shape[1]];
        let whole = rows.iter().all(|rows| rows.is_multiple_of(HALF)) && self.target().fusions.round;
        let some = self.grouping().is_some_and(|grouping| grouping.slots > 0) && self.rows() <= MOST_ROWS;
        some && whole && product.rounded_input(self).is_some() && product.arithmetic(self) == Arithmetic::Int
    }
}

/// The form of `product` with which the kernel computes it, if it can.
pub(super) fn places<'a>(plan: &Builder, product: &'a MatvecProduct<'a>) -> Option<Places<'a>> {
    let fits = product.epilogue.rounded.is_some() && plan.rows() <= MOST_ROWS;
    Places::of(plan, product, (&KERNEL, 2, MOST_OWN), plan.grouping()?.slots).filter(|_| fits)
}

/// The shader.
pub(super) fn variant(
    plan: &Builder,
    product: &MatvecProduct<'_>,
    places: &Places<'_>,
    routed: &Routed,
) -> VariantBuilder {
    let gated = source!("lib/gated_places.wgsl");
    let variant = places
        .variant(plan, product)
        .constant("TOP_K", "k", routed.ids.shape[0])
        .constant("MOST_SLOTS", "", MOST_ROWS)
        .file(source!("lib/expert_slots.wgsl"))
        .file_for("w", gated)
        .file_for("shared", gated)
        .file(source!("lib/activations.wgsl"));
    plan.count_files(variant)
}

/// The bindings of the selection.
pub(super) fn bindings(plan: &Builder, routed: &Routed) -> [Bound; 2] {
    [("ids", &routed.ids), ("weights", &routed.weights)].map(|(name, of): (_, &Tensor)| plan.bound(name, of.buffer))
}
