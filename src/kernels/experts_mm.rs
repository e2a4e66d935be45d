//! The chosen experts of every token of a chunk: slots grouped by expert, a tiled product for each group, and the
//! weighted sum, always in the same order.

use super::matmul::{TILE_TOKENS, TileProduct, TileRows, TileVectors};
use super::matvec::{self, columns_for, dot, gated, wide};
use super::mul_mm_matrix::bound;
use super::route;
use super::{Case, CaseBuilder, Gating, Groups, Router, Routing};
use crate::error::Result;
use crate::plan::{Batch, Builder, Target, Weight};
use crate::quant::Quant;

/// The chosen experts' matrices.
pub struct ExpertWeights<'a> {
    /// Gate {columns, rows, experts}.
    pub gate: &'a Weight,
    /// Up, of the same shape.
    pub up: &'a Weight,
    /// Down {rows, columns, experts}.
    pub down: &'a Weight,
}

impl Builder {
    /// x += `Σ weight · down[e] · (silu(gate[e] · h) · (up[e] · h))` over the chosen experts of every token, for h
    /// {columns} and x {columns}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn experts_mm(
        &mut self,
        label: &str,
        experts: &ExpertWeights<'_>,
        router: &Router<'_>,
        h: &Batch,
        x: &Batch,
    ) -> Result<()> {
        let name = |stage: &str| format!("{label}.{stage}");
        let count = experts.gate.shape[2];
        let routed = self.route(&name("route"), router.logits, router.bias, router.routing)?;
        // An expert's slots should fill one tile, so that its weights are decoded once, but leave little of it empty.
        let mean = h.tokens * router.routing.top_k / count.max(1);
        let places = (mean * 3 / 2).next_multiple_of(16).clamp(16, TILE_TOKENS);
        let groups = self.group_slots(&name("group"), &routed.ids, count, places)?;
        let hidden = self.gate_up_mm_id(&name("gate_up"), experts.gate, experts.up, &groups, h)?;
        let y = self.mul_mm_id(&name("down"), experts.down, &groups, &hidden)?;
        self.slot_sum(&name("sum"), &routed.weights, &y, x)
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
        x: &Batch,
    ) -> Result<Batch> {
        let share = groups.slots.shape[0] / x.tokens.max(1);
        let y = self.batch(label, [gate.shape[1], share], x.tokens);
        let (rows, vectors) = (TileRows::Gated { gate, up }, TileVectors::Slots { groups, share });
        self.matmul(label, &TileProduct { rows, vectors, x, y: &y })?;
        Ok(y)
    }

    /// y {rows, slots} = `w[e] · x` for every slot of every token, e its expert, for w {columns, rows, experts} and x
    /// {columns, slots}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn mul_mm_id(&mut self, label: &str, w: &Weight, groups: &Groups, x: &Batch) -> Result<Batch> {
        let y = self.batch(label, [w.shape[1], x.stacks], x.tokens);
        let (rows, vectors) = (TileRows::One { w, add: false }, TileVectors::Slots { groups, share: 1 });
        self.matmul(label, &TileProduct { rows, vectors, x, y: &y })?;
        Ok(y)
    }
}

/// Which experts tokens choose.
#[derive(Debug, Clone, Copy)]
enum Load {
    /// Any.
    Spread,
    /// One is chosen by all, another by none.
    Uneven,
}

pub(super) fn cases(target: Target) -> Result<Vec<Case>> {
    let formats = matvec::pairs(1).into_iter().zip(matvec::pairs(2)).map(|((gate, up), (_, down))| [gate, up, down]);
    let case = |(i, formats)| case(target, formats, [Load::Spread, Load::Uneven][i % 2], [(40, 37), (7, 5)][i / 2 % 2]);
    formats.enumerate().map(case).collect()
}

fn case(target: Target, formats: [&'static Quant; 3], load: Load, (tokens, count): (usize, usize)) -> Result<Case> {
    const EXPERTS: usize = 6;
    let widest = |quants: &[&Quant], columns| quants.iter().fold(columns, |columns, quant| columns_for(quant, columns));
    let (columns, rows) = (widest(&formats[..2], 44), widest(&formats[2..], 21));
    let routing = Routing { gating: Gating::Sigmoid, top_k: 2, normalise: true, scale: 1.8 };
    let mut case = CaseBuilder::for_chunk(target, 1, tokens);
    case.chunk(3, count);
    let (shape, back) = ([columns, rows, EXPERTS], [rows, columns, EXPERTS]);
    let (gate, gates) = case.weight("gate", formats[0], shape)?;
    let (up, ups) = case.weight("up", formats[1], shape)?;
    let (down, downs) = case.weight("down", formats[2], back)?;
    let (h, hs) = case.batch("h", [columns, 1], tokens, count);
    let (x, xs) = case.batch("x", [columns, 1], tokens, count);
    let mut zs = case.noise(EXPERTS * count);
    if let Load::Uneven = load {
        zs.chunks_mut(EXPERTS).for_each(|zs| (zs[4], zs[1]) = (9.0, -9.0));
    }
    let logits = case.batch_of("logits", [EXPERTS, 1], tokens, &zs);
    let biases: Vec<f32> = case.noise(EXPERTS).into_iter().map(|v| 0.01 * v).collect();
    let bias = case.vector_of("bias", &biases)?;
    let experts = ExpertWeights { gate: &gate, up: &up, down: &down };
    let router = Router { logits: &logits.vectors()?, bias: &bias, routing };
    case.plan.experts_mm("moe", &experts, &router, &h, &x)?;
    let mut want = Vec::new();
    for ((zs, h), x) in zs.chunks(EXPERTS).zip(wide(&hs).chunks(columns)).zip(xs.chunks(columns)) {
        let mut sums: Vec<(f64, f64)> = x.iter().map(|&v| (v as f64, v.abs() as f64)).collect();
        let (ids, weights) = route::expected(zs, &biases, routing);
        for (expert, weight) in ids.into_iter().zip(weights) {
            let hidden = |row| gated(dot(&gates, shape, expert, row, h), dot(&ups, shape, expert, row, h));
            let (hidden, sizes): (Vec<f64>, Vec<f64>) = (0..rows).map(hidden).unzip();
            for (row, sum) in sums.iter_mut().enumerate() {
                sum.0 += weight * dot(&downs, back, expert, row, &hidden).0;
                sum.1 += weight * dot(&downs, back, expert, row, &sizes).1;
            }
        }
        want.extend(sums);
    }
    let (want, sizes) = want.into_iter().unzip();
    case.expect_batch(&x, want, sizes, 3.0 * bound(target, &formats));
    case.allow_between();
    let names = formats.map(|quant| quant.name);
    Ok(case.finish(format!("{names:?} {columns}x{rows}x{EXPERTS}, {load:?}, {count} of {tokens} tokens")))
}
