//! The selected experts of many rows: slots are grouped by expert, and each group is a product computed by tiles. The
//! shared experts can be computed with them, as one more expert that all rows select.

use super::matmul::{TILE_TOKENS, TileProduct, TileRows, TileVectors};
use super::matvec::{Norm, buffers_of};
use super::{Groups, Residual, Router, Slots, Summands};
use crate::error::Result;
use crate::gpu::Matrices;
use crate::plan::{Builder, Tensor, Weight};

/// The maximum mean number of slots per expert for which tiles of 16 are used.
const FEW_SLOTS: usize = 10;
/// The maximum number of rows for which the shared experts are computed with the others, as measured on an H200.
const MAX_JOINED: usize = 1024;

/// The matrices of all experts, or those of the shared ones.
pub struct ExpertWeights<'a> {
    /// Gate {columns, rows, experts}.
    pub gate: &'a Weight,
    /// Up, of the same shape.
    pub up: &'a Weight,
    /// Down {rows, columns, experts}.
    pub down: &'a Weight,
}

impl ExpertWeights<'_> {
    fn gated(&self) -> TileRows<'_> {
        TileRows::Gated { gate: self.gate, up: self.up }
    }

    /// Whether these are one expert, of the shape that each of the `others` has.
    fn is_one_like(&self, others: &Self) -> bool {
        let pairs = [(self.gate, others.gate), (self.up, others.up), (self.down, others.down)];
        pairs.into_iter().all(|(own, other)| own.shape == [other.shape[0], other.shape[1], 1])
    }
}

impl Builder {
    /// Whether [`Builder::experts`] computes the shared experts too. In a batch of few rows, steps of their own would
    /// leave most of a large GPU idle. With many rows, separate steps are faster, because their tiles are larger.
    /// Without matrices of 16 x 16, this was not measured.
    pub fn joins_experts(&self, experts: &ExpertWeights<'_>, shared: &ExpertWeights<'_>) -> bool {
        const OTHERS: usize = 4; // x, y, slots, tiles
        let target = self.target();
        let fused = target.fusions.experts && target.matrices == Matrices::Sixteen && self.multiplies_halves();
        let gated = [experts.gate, experts.up, shared.gate, shared.up];
        let down = [experts.down, shared.down];
        let multiplied = gated.iter().chain(&down).all(|weight| !weight.quant.exceeds_half());
        let fits = buffers_of(&gated).max(buffers_of(&down)) + OTHERS <= target.buffers;
        let summed = experts.down.shape[1].is_multiple_of(4); // by `sum_normed`
        let few = self.by_tiles() && self.rows_alone() <= MAX_JOINED;
        fused && few && multiplied && fits && summed && shared.is_one_like(experts)
    }

    /// x {n} += the outputs of shared experts + `Σ weights[slot] · y[slot]` of the selected ones, for what
    /// [`Builder::experts`] computed of both. The norm `next` is applied to the result.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn add_experts(&mut self, label: &str, slots: &Slots, x: &Tensor, next: &Norm) -> Result<Residual> {
        let y = slots.y;
        let shared = Tensor { shape: [y.shape[0], y.rows], ..y };
        let shared = Summands { apart: y.pitch, ..shared.into() };
        let h = self.sum_normed(label, &shared, (x, true), Some(slots), next)?;
        Ok(Residual { normed: Some(h), ..Residual::from(*x) })
    }

    /// `down[e] · (silu(gate[e] · h) · (up[e] · h))` of the chosen experts of every token, for h {columns}, not yet
    /// multiplied by their weights and summed. If there are `shared` experts, which must have the same shape, the
    /// first slot of each token is theirs.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn experts_mm(
        &mut self,
        label: &str,
        experts: &ExpertWeights<'_>,
        shared: Option<&ExpertWeights<'_>>,
        router: &Router<'_>,
        h: &Tensor,
    ) -> Result<Slots> {
        let name = |stage: &str| format!("{label}.{stage}");
        let count = experts.gate.shape[2];
        let routed = self.route(&name("route"), router.logits, router.bias, router.routing)?;
        // An expert's slots should fit one tile, so that its weights are decoded once, but leave little of it empty.
        // Tiles of 32 are no faster than tiles of 48.
        let mean = h.rows * router.routing.top_k / count.max(1);
        let places = if mean <= FEW_SLOTS { 16 } else { (mean * 3 / 2).next_multiple_of(16).clamp(48, TILE_TOKENS) };
        let groups = self.group_slots(&name("group"), &routed.ids, (count, shared.is_some()), places)?;
        let hidden = self.gate_up_mm_id(&name("gate_up"), experts, shared, &groups, h)?;
        let y = self.mul_mm_id(&name("down"), experts.down, shared.map(|shared| shared.down), &groups, &hidden)?;
        Ok(Slots { routed, y })
    }

    /// y {rows, slots} = `silu(gate[e] · x) · (up[e] · x)` for every slot of every token, e its expert, for x
    /// {columns}. The matrices of the `shared` experts, if there are any, are those of one more expert.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn gate_up_mm_id(
        &mut self,
        label: &str,
        experts: &ExpertWeights<'_>,
        shared: Option<&ExpertWeights<'_>>,
        groups: &Groups,
        x: &Tensor,
    ) -> Result<Tensor> {
        let y = self.tensor(label, [experts.gate.shape[1], groups.per_row * x.rows]);
        let vectors = TileVectors::Slots { groups, share: groups.per_row };
        let (rows, other) = (experts.gated(), shared.map(ExpertWeights::gated));
        self.matmul(label, &TileProduct { rows, other, rotated: None, vectors, x, y: &y })?;
        Ok(y)
    }

    /// y {rows, slots} = `w[e] · x` for every slot of every token, e its expert, for w {columns, rows, experts} and x
    /// {columns, slots}. The `shared` matrix, if there is one, is that of one more expert.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn mul_mm_id(
        &mut self,
        label: &str,
        w: &Weight,
        shared: Option<&Weight>,
        groups: &Groups,
        x: &Tensor,
    ) -> Result<Tensor> {
        let y = self.tensor(label, [w.shape[1], x.per_row() * x.rows]);
        let of = |w| TileRows::One { w, add: false };
        let vectors = TileVectors::Slots { groups, share: 1 };
        self.matmul(label, &TileProduct { rows: of(w), other: shared.map(of), rotated: None, vectors, x, y: &y })?;
        Ok(y)
    }
}
