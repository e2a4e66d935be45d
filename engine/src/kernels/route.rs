//! Selects experts for every row by the router's logits, and computes their weights.

use super::computes::SelectedExperts;
use super::{Kernel, Summands, expect_shape, params};
use crate::error::{Error, Result};
use crate::plan::{Bound, Builder, Cost, Tensor, VariantBuilder, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/route.wgsl");
const WORKGROUP: usize = 64;

params! { pitch: u32, parts: u32, apart: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "route", op: OP, params: Params::FIELDS, matrices: &[] };

/// How a router's logits become scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gating {
    /// Each logit on its own: 1 / (1 + e^−z).
    Sigmoid,
    /// The softmax of all logits.
    Softmax,
}

/// Groups of consecutive experts, all of the same size. Only the experts of the `used` best groups can be selected. A
/// group's score is the sum of the two largest score + bias of its experts, as in llama.cpp's `build_moe_ffn`
/// (DeepSeek-AI, "DeepSeek-V3", 2024, section 2.1.2, calls the groups nodes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertGroups {
    /// The number of groups. It divides the number of experts, and each group has at least two.
    pub count: usize,
    /// The number of groups whose experts can be selected, which together have at least `top_k`.
    pub used: usize,
}

/// How experts are selected and weighted: the `top_k` with the largest score + bias. Their weights are their scores
/// without the bias, divided by their sum if `normalise` is set, times `scale` (DeepSeek-AI, "DeepSeek-V3", 2024,
/// section 2.1.2; softmax is that of "DeepSeek-V2", 2024; `scale` and the order of all are llama.cpp's
/// `build_moe_ffn`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Routing {
    /// How logits become scores.
    pub gating: Gating,
    /// The number of selected experts.
    pub top_k: usize,
    /// The groups that limit the selection; `None` if all experts can be selected.
    pub groups: Option<ExpertGroups>,
    /// Whether the scores of the selected experts are divided by their sum.
    pub normalise: bool,
    /// The factor on the weights.
    pub scale: f32,
}

/// The selected experts of every row.
pub struct Routed {
    /// Their ids {`top_k`, tokens}, u32, best first.
    pub ids: Tensor,
    /// Their weights {`top_k`, tokens}.
    pub weights: Tensor,
}

impl Builder {
    /// Selects the `top_k` experts with the largest score + bias for every row, from logits {experts, rows} and bias
    /// {experts}.
    ///
    /// # Errors
    /// [`Error::Shape`] if the shapes do not fit together.
    pub fn route(
        &mut self,
        label: &str,
        logits: impl Into<Summands>,
        bias: &Weight,
        routing: Routing,
    ) -> Result<Routed> {
        let summands = logits.into();
        let logits = &summands.tensor;
        routing.check(KERNEL.name, logits, bias)?;
        let ([experts, tokens], top_k) = (logits.shape, routing.top_k);
        expect_shape(KERNEL.name, "the router's logits", tokens, self.rows())?;
        let ids = routing.ids(self, label);
        let weights = self.tensor_with_stride(&format!("{label}.weights"), [top_k, tokens], top_k);
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP);
        // The same kernel for one row as for many: one pipeline.
        let variant = self.batch_files(routing.files(variant, experts));
        let mut bindings = self.bound_router(&summands, bias);
        bindings.extend([self.bound_batch(), self.bound("ids", ids.buffer), self.bound("weights", weights.buffer)]);
        let activations = summands.bytes() + ids.bytes() + weights.bytes();
        let cost = Cost { weights: bias.matrix_bytes(), activations, ..Cost::default() };
        let chosen = SelectedExperts {
            logits: summands,
            bias: bias.clone(),
            routing,
            ids: ids.buffer,
            weights: Some(weights.buffer),
        };
        self.computes(KERNEL.name, chosen);
        let params = Params { pitch: logits.pitch as u32, parts: summands.parts as u32, apart: summands.apart as u32 };
        self.step(label, variant, bindings, &params, [tokens, 1, 1], cost)?;
        Ok(Routed { ids, weights })
    }

    /// The bindings of the files that select.
    pub(super) fn bound_router(&self, logits: &Summands, bias: &Weight) -> Vec<Bound> {
        vec![self.bound_summands("logits", logits), self.bound("bias", bias.buffer())]
    }
}

impl Routing {
    /// The lower bound on the sum by which the scores of the selected experts are divided. It is the smallest normal
    /// f16, as in llama.cpp.
    pub(crate) const SMALLEST_SUM: f32 = 1.0 / 16384.0;

    /// The ids of the selected experts {`top_k`, rows} of a step.
    pub(super) fn ids(&self, plan: &mut Builder, label: &str) -> Tensor {
        plan.tensor_with_stride(&format!("{label}.ids"), [self.top_k, plan.rows()], self.top_k)
    }

    /// Fails unless `top_k` experts can be selected by logits {experts} and bias {experts}.
    pub(super) fn check(&self, op: &'static str, logits: &Tensor, bias: &Weight) -> Result<()> {
        let experts = logits.shape[0];
        expect_shape(op, &bias.name, bias.shape[0], experts)?;
        let selectable = match self.groups {
            Some(groups) => groups.experts(op, bias, experts)?,
            None => experts,
        };
        if (1..=selectable).contains(&self.top_k) {
            return Ok(());
        }
        let (tensor, got) = (bias.name.to_string(), format!("{} experts chosen", self.top_k));
        Err(Error::Shape { op, tensor, got, want: format!("1 to {selectable}") })
    }

    /// Adds the files that select among `experts` experts.
    pub(super) fn files(&self, variant: VariantBuilder, experts: usize) -> VariantBuilder {
        let variant = variant
            .constant("EXPERTS", "e", experts)
            .constant("TOP_K", "k", self.top_k)
            .switch("SOFTMAX", "s", self.gating == Gating::Softmax)
            .switch("NORMALISE", "n", self.normalise)
            .real("SCALE", "f", self.scale)
            .real("SMALLEST_SUM", "", Self::SMALLEST_SUM)
            .file(source!("lib/activations.wgsl"))
            .file(source!("lib/moe_top_k.wgsl"));
        let Some(ExpertGroups { count, used }) = self.groups else {
            return variant.file(source!("lib/expert_groups_none.wgsl"));
        };
        let variant = variant.constant("EXPERT_GROUPS", "g", count).constant("EXPERT_GROUPS_USED", "u", used);
        variant.file(source!("lib/expert_groups.wgsl"))
    }
}

impl ExpertGroups {
    /// The number of experts that can be selected among `experts`.
    ///
    /// Fails unless all groups have the same size of at least two, and 1 to all of them are used.
    fn experts(&self, op: &'static str, bias: &Weight, experts: usize) -> Result<usize> {
        let Self { count, used } = *self;
        let whole = count > 0 && experts.is_multiple_of(count) && experts / count >= 2;
        if whole && (1..=count).contains(&used) {
            return Ok(experts / count * used);
        }
        let (tensor, got) = (bias.name.to_string(), format!("{used} of {count} groups of {experts} experts"));
        Err(Error::Shape {
            op,
            tensor,
            got,
            want: "equal groups of at least two experts, 1 to all of them used".into(),
        })
    }
}
