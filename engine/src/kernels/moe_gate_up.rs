//! The first half of a mixture of experts: gate and up of the selected experts and of the shared ones. The experts are
//! selected by an earlier step, or by each workgroup of this one.

use super::computes::{self, MatrixSelection, SelectedExperts, Terms};
use super::matvec::{Feed, HALF, Input, MatvecProduct, buffers_of};
use super::moe_gate_up_grouped as grouped;
use super::rounded::{Epilogue, Rounded};
use super::route::{Routed, Routing};
use super::{Kernel, Summands, expect_shape};
use crate::error::Result;
use crate::gguf::Shape;
use crate::plan::{Bound, Builder, Cost, Tensor, VariantBuilder, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/moe_gate_up.wgsl");

pub(super) const KERNEL: Kernel = Kernel { name: "moe_gate_up", op: OP, params: &[], matrices: &[] };

/// Gate and up of the experts {columns, rows, experts}, and of the shared ones {columns, shared rows}.
pub struct GateUp<'a> {
    /// The experts' gate.
    pub gate: &'a Weight,
    /// The experts' up.
    pub up: &'a Weight,
    /// The shared experts' gate.
    pub shared_gate: &'a Weight,
    /// The shared experts' up.
    pub shared_up: &'a Weight,
}

/// The router's logits {experts, tokens}, and how they select experts.
pub struct Router<'a> {
    /// The logits.
    pub logits: Summands,
    /// The bias that is added to the scores for the selection only, not for the weights.
    pub bias: &'a Weight,
    /// How experts are selected and weighed.
    pub routing: Routing,
}

/// Where the experts are selected.
pub enum Selection<'a> {
    /// In every workgroup.
    Each(&'a Router<'a>),
    /// In an earlier step.
    Made(&'a Routed),
}

/// The results of the first half.
pub struct Hidden {
    /// The selected experts {`top_k`, tokens}, u32, token after token.
    pub ids: Tensor,
    /// Their hidden values {rows, (`top_k` + 1) · tokens}: for each token those of the selected experts, times the
    /// experts' weights, then those of the shared experts.
    pub y: Input,
}

/// What a kernel needs to become the step.
pub(super) struct StepParts {
    pub kernel: &'static Kernel,
    pub variant: VariantBuilder,
    pub bindings: Vec<Bound>,
    pub grid: [usize; 3],
}

impl GateUp<'_> {
    pub(super) fn roles(&self) -> [(&'static str, &Weight); 4] {
        [("w_gate", self.gate), ("w_up", self.up), ("shared_gate", self.shared_gate), ("shared_up", self.shared_up)]
    }

    /// The number of storage buffers that the kernel binds.
    pub fn buffers(&self) -> usize {
        const OTHERS: usize = 7; // x, norm, logits, bias, state, ids, y
        buffers_of(&self.roles().map(|(_, weight)| weight)) + OTHERS
    }

    /// The rows of the larger experts.
    fn rows(&self) -> usize {
        self.gate.shape[1].max(self.shared_gate.shape[1])
    }

    /// Whether the step also writes its output rounded.
    pub(super) fn is_rounded(&self, plan: &Builder) -> bool {
        let whole = [self.gate, self.shared_gate].iter().all(|w| w.shape[1].is_multiple_of(HALF));
        whole && self.buffers() < plan.target().buffers && plan.rounds(KERNEL.name) // one more buffer
    }

    /// The product for the slots of `top_k` experts and of the shared ones.
    pub(super) fn product<'a>(
        &'a self,
        plan: &Builder,
        label: &'a str,
        top_k: usize,
        x: &'a Input,
        rounded: Option<Rounded>,
    ) -> MatvecProduct<'a> {
        MatvecProduct {
            epilogue: Epilogue { rounded, norm: None },
            rows: self.rows(),
            layers: top_k + 1,
            together: plan.rows(),
            ..MatvecProduct::new(&KERNEL, label, self.roles(), Feed::Input(x))
        }
    }
}

impl Selection<'_> {
    fn top_k(&self) -> usize {
        match self {
            Self::Each(router) => router.routing.top_k,
            Self::Made(routed) => routed.ids.shape[0],
        }
    }

    /// Fails unless it selects among `experts` experts.
    fn check(&self, experts: usize) -> Result<()> {
        let Self::Each(Router { logits, bias, routing }) = self else { return Ok(()) };
        expect_shape(KERNEL.name, "the router's logits", logits.tensor.shape[0], experts)?;
        routing.check(KERNEL.name, &logits.tensor, bias)
    }

    /// The selected experts, which the step writes unless an earlier one did.
    fn ids(&self, plan: &mut Builder, label: &str) -> Tensor {
        match self {
            Self::Each(router) => router.routing.ids(plan, label),
            Self::Made(routed) => routed.ids,
        }
    }

    /// Adds the files that select among `experts` experts, or read the selection.
    fn files(&self, variant: VariantBuilder, experts: usize) -> VariantBuilder {
        match self {
            Self::Each(Router { logits, routing, .. }) => routing
                .files(variant, experts)
                .constant("LOGITS_PITCH", "", logits.tensor.stride)
                .file(source!("lib/moe_choose.wgsl")),
            Self::Made(_) => {
                let variant = variant.constant("TOP_K", "k", self.top_k()).file(source!("lib/activations.wgsl"));
                variant.tagged((source!("lib/moe_chosen.wgsl"), "chosen"))
            }
        }
    }

    /// The bindings of these files except the ids.
    fn bindings(&self, plan: &Builder) -> Vec<Bound> {
        match self {
            Self::Each(Router { logits, bias, .. }) => plan.bound_router(logits, bias),
            Self::Made(routed) => vec![plan.bound("weights", routed.weights.buffer)],
        }
    }

    /// The bytes of the router's bias, if the step reads it.
    fn bias_bytes(&self) -> u64 {
        if let Self::Each(router) = self { router.bias.matrix_bytes() } else { 0 }
    }

    /// What the step selects, for the CPU reference.
    fn selected(&self, ids: &Tensor) -> Option<SelectedExperts> {
        let Self::Each(Router { logits, bias, routing }) = *self else { return None };
        Some(SelectedExperts {
            logits: *logits,
            bias: (*bias).clone(),
            routing: *routing,
            ids: ids.buffer,
            weights: None,
        })
    }
}

impl Builder {
    /// silu(gate · x) · (up · x) of the selected experts, times their weights, and of the shared ones.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn moe_gate_up(
        &mut self,
        label: &str,
        weights: &GateUp<'_>,
        selection: &Selection<'_>,
        x: &Input,
    ) -> Result<Hidden> {
        let [columns, _, experts] = weights.gate.shape;
        let shape = |weight: &Weight| Shape(&weight.shape).to_string();
        expect_shape(KERNEL.name, &weights.up.name, shape(weights.up), shape(weights.gate))?;
        expect_shape(KERNEL.name, &weights.shared_up.name, shape(weights.shared_up), shape(weights.shared_gate))?;
        expect_shape(KERNEL.name, &weights.shared_gate.name, weights.shared_gate.shape[0], columns)?;
        selection.check(experts)?;
        let (top_k, tokens) = (selection.top_k(), self.rows());
        let ids = selection.ids(self, label);
        let y = self.tensor(label, [weights.rows(), (top_k + 1) * tokens]);
        let rounded = if weights.is_rounded(self) { self.rounded(KERNEL.name, &y, label) } else { None };
        let product = MatvecProduct {
            needs_barrier: matches!(selection, Selection::Each(_)), // to select experts
            ..weights.product(self, label, top_k, x, rounded)
        };
        product.expect_input(columns, tokens)?;
        let reference = reference(self, &product, weights, selection, &ids, &y);
        let mut cost = product.cost(y.bytes());
        cost += [weights.gate, weights.up].map(|w| Cost::of_slots(w, top_k * tokens)).into_iter().sum();
        cost += [weights.shared_gate, weights.shared_up].map(|w| Cost::products(w, 1, tokens)).into_iter().sum();
        cost.weights += selection.bias_bytes();
        let grouped = match selection {
            Selection::Made(routed) => grouped::step(self, &product, routed, experts, &y),
            Selection::Each(_) => None,
        };
        let step = grouped.unwrap_or_else(|| by_slots(self, &product, selection, experts, (&ids, &y)));
        self.computes(step.kernel.name, reference);
        self.step(label, step.variant, step.bindings, &(), step.grid, cost)?;
        Ok(Hidden { ids, y: Input { tensor: y, norm: None, rounded } })
    }
}

/// The step in which each workgroup computes rows of one slot.
fn by_slots(
    plan: &Builder,
    product: &MatvecProduct<'_>,
    selection: &Selection<'_>,
    experts: usize,
    (ids, y): (&Tensor, &Tensor),
) -> StepParts {
    let gated_rows = source!("lib/gated_rows.wgsl");
    let variant = plan
        .count_files(selection.files(product.variant(plan), experts))
        .constant("Y_STRIDE", "y", y.stride)
        .file_for("w", gated_rows)
        .file_for("shared", gated_rows)
        .file(source!("lib/gated.wgsl"));
    let mut bindings = product.bindings(plan);
    bindings.extend(selection.bindings(plan));
    bindings.extend(plan.bound_count());
    bindings.extend([plan.bound("ids", ids.buffer), plan.bound("y", y.buffer)]);
    let [width, height, _] = product.grid(plan, product.blocks(plan, product.rows));
    let (tokens, top_k) = (plan.rows(), selection.top_k());
    let grid = [width, height, tokens / product.tiling(plan).columns + tokens * top_k];
    StepParts { kernel: &KERNEL, variant, bindings, grid }
}

/// What the step computes, for the CPU reference: the selection if it makes one, and the first half of the selected and
/// of the shared experts.
fn reference(
    plan: &Builder,
    product: &MatvecProduct<'_>,
    weights: &GateUp<'_>,
    selection: &Selection<'_>,
    ids: &Tensor,
    y: &Tensor,
) -> (Option<SelectedExperts>, (computes::Product, computes::Product)) {
    let top_k = selection.top_k();
    let selected = selection.selected(ids);
    let which = match selection {
        Selection::Made(Routed { ids, weights }) => {
            MatrixSelection::Routed { ids: ids.buffer, weights: weights.buffer, top_k }
        }
        Selection::Each(_) => selected.clone().map_or(MatrixSelection::InTurn, MatrixSelection::SelectedExperts),
    };
    let gated = |gate: &Weight, up: &Weight| Terms::Gated { gate: gate.clone(), up: up.clone(), limit_to_f16: false };
    let half = |terms, which, stacks| computes::Product { stacks, ..product.reference(plan, terms, which, y) };
    let of_selected = half(gated(weights.gate, weights.up), which, (0, top_k));
    let shared = gated(weights.shared_gate, weights.shared_up);
    (selected, (of_selected, half(shared, MatrixSelection::InTurn, (top_k, 1))))
}
