//! The selected experts of many rows: slots are grouped by expert, and each group is a product computed by tiles.

use super::matmul::{TILE_TOKENS, TileProduct, TileRows, TileVectors};
use super::{Groups, Router, Slots};
use crate::error::Result;
use crate::plan::{Builder, Tensor, Weight};

/// The largest mean number of slots of an expert for which tiles of 16 are used.
const FEW_SLOTS: usize = 10;

/// The matrices of all experts.
pub struct ExpertWeights<'a> {
    /// Gate {columns, rows, experts}.
    pub gate: &'a Weight,
    /// Up, of the same shape.
    pub up: &'a Weight,
    /// Down {rows, columns, experts}.
    pub down: &'a Weight,
}

impl Builder {
    /// `down[e] · (silu(gate[e] · h) · (up[e] · h))` of the chosen experts of every token, for h {columns}, not yet
    /// multiplied with their weights and summed.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn experts_mm(
        &mut self,
        label: &str,
        experts: &ExpertWeights<'_>,
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
        let groups = self.group_slots(&name("group"), &routed.ids, count, places)?;
        let hidden = self.gate_up_mm_id(&name("gate_up"), experts.gate, experts.up, &groups, h)?;
        let y = self.mul_mm_id(&name("down"), experts.down, &groups, &hidden)?;
        Ok(Slots { routed, y })
    }

    /// y {rows, slots} = `silu(gate[e] · x) · (up[e] · x)` for every slot of every token, e its expert, for gate and
    /// up {columns, rows, experts} and x {columns}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn gate_up_mm_id(
        &mut self,
        label: &str,
        gate: &Weight,
        up: &Weight,
        groups: &Groups,
        x: &Tensor,
    ) -> Result<Tensor> {
        let share = groups.slots.shape[0] / x.rows.max(1);
        let y = self.tensor(label, [gate.shape[1], share * x.rows]);
        let (rows, vectors) = (TileRows::Gated { gate, up }, TileVectors::Slots { groups, share });
        self.matmul(label, &TileProduct { rows, vectors, x, y: &y })?;
        Ok(y)
    }

    /// y {rows, slots} = `w[e] · x` for every slot of every token, e its expert, for w {columns, rows, experts} and x
    /// {columns, slots}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn mul_mm_id(&mut self, label: &str, w: &Weight, groups: &Groups, x: &Tensor) -> Result<Tensor> {
        let y = self.tensor(label, [w.shape[1], x.per_row() * x.rows]);
        let (rows, vectors) = (TileRows::One { w, add: false }, TileVectors::Slots { groups, share: 1 });
        self.matmul(label, &TileProduct { rows, vectors, x, y: &y })?;
        Ok(y)
    }
}
