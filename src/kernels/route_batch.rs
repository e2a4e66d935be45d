//! The router's choice of experts for every token of a chunk.

use super::route::{self, Gating, Routing};
use super::{Case, CaseBuilder, Kernel, Kind};
use crate::error::Result;
use crate::plan::{Batch, Builder, Moved, Target, Tensor, VariantBuilder, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/route_batch.wgsl");
const WORKGROUP: usize = 64;

pub(super) const KERNEL: Kernel = Kernel { name: "route_batch", op: OP, params: &[], matrices: &[], cases };

/// The chosen experts of a chunk's tokens.
pub struct RoutedBatch {
    /// Their ids {`top_k`, tokens}, u32, best first.
    pub ids: Tensor,
    /// Their weights {`top_k`, tokens}.
    pub weights: Tensor,
}

impl Builder {
    /// As [`Builder::route`], for every token of logits {experts}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn route_batch(&mut self, label: &str, logits: &Batch, bias: &Weight, routing: Routing) -> Result<RoutedBatch> {
        let one = Tensor { buffer: logits.buffer, shape: [logits.values, 1], stride: logits.stride };
        routing.check(KERNEL.name, &one, bias)?;
        let top_k = routing.top_k;
        let ids = self.tensor_with_stride(&format!("{label}.ids"), [top_k, logits.tokens], top_k);
        let weights = self.tensor_with_stride(&format!("{label}.weights"), [top_k, logits.tokens], top_k);
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP).constant("LOGITS_PITCH", "x", logits.pitch);
        let variant = self.state_files(routing.files(variant, logits.values));
        let mut bindings = self.bound_choice(&one, bias);
        bindings.extend([self.bound("ids", ids.buffer), self.bound("weights", weights.buffer), self.bound_state()]);
        let activations = logits.bytes() + ids.bytes() + weights.bytes();
        let moved = Moved { weights: bias.matrix_bytes(), activations, cache: 0 };
        self.step(label, variant, bindings, &(), [logits.tokens, 1, 1], moved)?;
        Ok(RoutedBatch { ids, weights })
    }
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let routing = |gating, top_k| Routing { gating, top_k, normalise: gating == Gating::Sigmoid, scale: 1.8 };
    let shapes =
        [(8, Gating::Sigmoid, 2, (3, 2)), (64, Gating::Sigmoid, 4, (40, 37)), (160, Gating::Softmax, 6, (9, 9))];
    shapes.into_iter().map(|(experts, gating, k, tokens)| case(target, experts, routing(gating, k), tokens)).collect()
}

fn case(target: Target, experts: usize, routing: Routing, (tokens, count): (usize, usize)) -> Result<Case> {
    let mut case = CaseBuilder::for_chunk(target, 1, tokens);
    case.chunk(0, count);
    let (logits, zs) = case.batch("logits", [experts, 1], tokens, count);
    let (bias, biases) = case.vector("bias", experts)?;
    let routed = case.plan.route_batch("route", &logits, &bias, routing)?;
    let (ids, weights): (Vec<_>, Vec<_>) = zs.chunks(experts).map(|zs| route::twin(zs, &biases, routing)).unzip();
    let ids = ids.concat().into_iter().map(|e| e as f64).collect();
    case.expect_at(routed.ids.buffer, Kind::U32, 0, ids, 0.0);
    let weights = weights.concat();
    case.expect(&routed.weights, weights.clone(), weights, 1e-5);
    Ok(case.finish(format!("{experts} experts, {count} of {tokens} tokens, {routing:?}")))
}
