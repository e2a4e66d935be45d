//! The router's router of experts and their weights.

use super::case::ValueType;
use super::reference::SelectedExperts;
use super::{Case, CaseBuilder, Kernel, expect_shape};
use crate::error::{Error, Result};
use crate::plan::{Bound, Builder, Cost, Target, Tensor, VariantBuilder, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/route.wgsl");
const WORKGROUP: usize = 64;
/// The smallest sum of chosen scores that weights are divided by, as llama.cpp has it.
const SMALLEST_SUM: f64 = 6.103515625e-5;

pub(super) const KERNEL: Kernel = Kernel { name: "route", op: OP, params: &[], matrices: &[], several: false, cases };

/// How a router's logits become scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gating {
    /// Each logit on its own: 1 / (1 + e^−z).
    Sigmoid,
    /// All logits together.
    Softmax,
}

/// How experts are chosen and weighed: the `top_k` with the largest score + bias, weighed by their scores without the
/// bias, over their sum if so asked, times `scale` (DeepSeek-AI, "DeepSeek-V3", 2024, section 2.1.2; softmax is that of
/// "DeepSeek-V2", 2024; `scale` and the order of all are llama.cpp's `build_moe_ffn`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Routing {
    /// How logits become scores.
    pub gating: Gating,
    /// Experts chosen.
    pub top_k: usize,
    /// Divide the chosen scores by their sum.
    pub normalise: bool,
    /// What the weights are multiplied by in the end.
    pub scale: f32,
}

/// The chosen experts of every token.
pub struct Routed {
    /// Their ids {`top_k`, tokens}, u32, best first.
    pub ids: Tensor,
    /// Their weights {`top_k`, tokens}.
    pub weights: Tensor,
}

impl Builder {
    /// Chooses the `top_k` experts with the largest score + bias for every token, from logits {experts, tokens} and
    /// bias {experts}.
    ///
    /// # Errors
    /// [`Error::Shape`] if the shapes do not fit together.
    pub fn route(&mut self, label: &str, logits: &Tensor, bias: &Weight, routing: Routing) -> Result<Routed> {
        routing.check(KERNEL.name, logits, bias)?;
        let ([experts, tokens], top_k) = (logits.shape, routing.top_k);
        expect_shape(KERNEL.name, "the router's logits", tokens, self.tokens())?;
        let ids = self.tensor_with_stride(&format!("{label}.ids"), [top_k, tokens], top_k);
        let weights = self.tensor_with_stride(&format!("{label}.weights"), [top_k, tokens], top_k);
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP).constant("LOGITS_PITCH", "", logits.stride);
        let variant = self.count_files(routing.files(variant, experts));
        let mut bindings = self.bound_router(logits, bias);
        bindings.extend(self.bound_count());
        bindings.extend([self.bound("ids", ids.buffer), self.bound("weights", weights.buffer)]);
        let activations = logits.bytes() + ids.bytes() + weights.bytes();
        let cost = Cost { weights: bias.matrix_bytes(), activations, ..Cost::default() };
        let chosen = SelectedExperts {
            logits: *logits,
            bias: bias.clone(),
            routing,
            ids: ids.buffer,
            weights: Some(weights.buffer),
        };
        self.computes(KERNEL.name, chosen);
        self.step(label, variant, bindings, &(), [tokens, 1, 1], cost)?;
        Ok(Routed { ids, weights })
    }

    /// What the files that choose bind.
    pub(super) fn bound_router(&self, logits: &Tensor, bias: &Weight) -> Vec<Bound> {
        vec![self.bound("logits", logits.buffer), self.bound("bias", bias.buffer())]
    }
}

impl Routing {
    /// An error unless logits {experts} and bias {experts} can be chosen from.
    pub(super) fn check(&self, op: &'static str, logits: &Tensor, bias: &Weight) -> Result<()> {
        let experts = logits.shape[0];
        expect_shape(op, &bias.name, bias.shape[0], experts)?;
        if (1..=experts).contains(&self.top_k) {
            return Ok(());
        }
        let (tensor, got) = (bias.name.to_string(), format!("{} experts chosen", self.top_k));
        Err(Error::Shape { op, tensor, got, want: format!("1 to {experts}") })
    }

    /// The files that choose among `experts` experts.
    pub(super) fn files(&self, variant: VariantBuilder, experts: usize) -> VariantBuilder {
        variant
            .constant("EXPERTS", "e", experts)
            .constant("TOP_K", "k", self.top_k)
            .switch("SOFTMAX", "s", self.gating == Gating::Softmax)
            .switch("NORMALISE", "n", self.normalise)
            .real("SCALE", "f", self.scale)
            .file(source!("lib/moe_top_k.wgsl"))
    }
}

/// The chosen of these logits and biases, best first, and their weights.
pub(super) fn expected(logits: &[f32], bias: &[f32], routing: Routing) -> (Vec<usize>, Vec<f64>) {
    let top = logits.iter().fold(f64::MIN, |m, &z| m.max(z as f64));
    let sum: f64 = logits.iter().map(|&z| (z as f64 - top).exp()).sum();
    let score = |z: f64| match routing.gating {
        Gating::Sigmoid => 1.0 / (1.0 + (-z).exp()),
        Gating::Softmax => (z - top).exp() / sum,
    };
    let scores: Vec<f64> = logits.iter().map(|&z| score(z as f64)).collect();
    let mut order: Vec<usize> = (0..scores.len()).collect();
    let chance = |e: usize| scores[e] + bias[e] as f64;
    order.sort_by(|&a, &b| chance(b).total_cmp(&chance(a)));
    order.truncate(routing.top_k);
    let total: f64 = order.iter().map(|&e| scores[e]).sum();
    let factor = routing.scale as f64 / if routing.normalise { total.max(SMALLEST_SUM) } else { 1.0 };
    let weights = order.iter().map(|&e| scores[e] * factor).collect();
    (order, weights)
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (experts, top_k) in [(8, 2), (64, 4), (5, 5), (160, 6), (1, 1), (257, 8)] {
        for (gating, normalise, scale) in
            [(Gating::Sigmoid, true, 1.8), (Gating::Softmax, false, 1.0), (Gating::Softmax, true, 2.5)]
        {
            cases.push(case(target, experts, Routing { gating, top_k, normalise, scale }, (1, 1))?);
        }
    }
    let routing = |gating, top_k| Routing { gating, top_k, normalise: gating == Gating::Sigmoid, scale: 1.8 };
    for (experts, gating, top_k, tokens) in
        [(8, Gating::Sigmoid, 2, (3, 2)), (64, Gating::Sigmoid, 4, (40, 37)), (160, Gating::Softmax, 6, (9, 9))]
    {
        cases.push(case(target, experts, routing(gating, top_k), tokens)?);
    }
    cases.push(hopeless(target)?);
    Ok(cases)
}

/// Of `room` tokens the first `count`.
fn case(target: Target, experts: usize, routing: Routing, (room, count): (usize, usize)) -> Result<Case> {
    let mut case = CaseBuilder::for_tokens(target, 1, room);
    if room > 1 {
        case.chunk(0, count);
    }
    let logits = case.plan.tensor("logits", [experts, room]);
    let zs: Vec<f32> = case.noise(experts * count).into_iter().map(|v| 6.0 * v).collect();
    case.fill(&logits, &zs);
    let (bias, biases) = case.vector("bias", experts)?;
    let routed = case.plan.route("route", &logits, &bias, routing)?;
    let (ids, weights): (Vec<_>, Vec<_>) = zs.chunks(experts).map(|zs| expected(zs, &biases, routing)).unzip();
    case.expect_at(routed.ids.buffer, ValueType::U32, 0, ids.concat().into_iter().map(|e| e as f64).collect(), 0.0);
    let weights = weights.concat();
    case.expect(&routed.weights, weights.clone(), weights, 1e-5);
    Ok(case.finish(format!("{experts} experts, {count} of {room} tokens, {routing:?}")))
}

/// Scores that are all zero: the bias alone chooses, and the weights stay numbers.
fn hopeless(target: Target) -> Result<Case> {
    let mut case = CaseBuilder::new(target, 1);
    let logits = case.plan.tensor("logits", [4, 1]);
    let zs = [-1e30; 4];
    case.fill(&logits, &zs);
    let (bias, biases) = case.vector("bias", 4)?;
    let routing = Routing { gating: Gating::Sigmoid, top_k: 4, normalise: true, scale: 1.0 };
    let routed = case.plan.route("route", &logits, &bias, routing)?;
    let (ids, weights) = expected(&zs, &biases, routing);
    case.expect_at(routed.ids.buffer, ValueType::U32, 0, ids.into_iter().map(|e| e as f64).collect(), 0.0);
    case.expect(&routed.weights, weights, vec![1.0; 4], 1e-6);
    Ok(case.finish("logits of -1e30"))
}
