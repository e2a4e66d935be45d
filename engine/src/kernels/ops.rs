//! The operations of a model's graph. Each appends the kernels that suit the plan: matrix-vector kernels for products
//! of few rows, tiles for many rows. Steps that can share a dispatch are fused unless
//! [`Fusions`](crate::plan::Fusions) excludes it. Most fusions are of steps of few rows: with many rows, the cost of
//! waiting between dispatches is small.

use super::moe_gate_up::{GateUp, Hidden, Selection};
use super::{
    BatchAttention, Cache, ExpertWeights, Input, LatentWeights, Norm, Residual, Rounded, Router, Slots, Summands,
    splits,
};
use crate::error::Result;
use crate::plan::{Builder, Tensor, Weight};

/// From this many KV rows before the batch on, the cache is deep, and attention of many rows is divided into splits.
const DEEP: u64 = 1024;

impl Builder {
    /// y {rows of w, n} = w · x, for w {columns, rows, matrices} and x {columns, n}: vector *i* of a row times matrix
    /// *i*, or all vectors times the only matrix.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together, like all methods here.
    pub fn linear(&mut self, label: &str, w: &Weight, x: &Input) -> Result<Tensor> {
        let y = self.tensor(label, [w.shape[1], x.tensor.shape[1]]);
        self.linear_into(label, w, x, &y)?;
        Ok(y)
    }

    /// As [`Builder::linear`], into an existing tensor.
    ///
    /// # Errors
    /// As there.
    pub fn linear_into(&mut self, label: &str, w: &Weight, x: &Input, y: &Tensor) -> Result<()> {
        if self.by_tiles() { self.mul_mm_into(label, w, &x.tensor, y) } else { self.mul_mv_into(label, w, x, y) }
    }

    /// x {rows of w, n} += w · y: a product that is added to the residual stream, to which the norm `next` is applied
    /// next.
    ///
    /// # Errors
    /// As [`Builder::linear`].
    pub fn linear_add(&mut self, label: &str, w: &Weight, y: &Input, x: &Tensor, next: &Norm) -> Result<Residual> {
        self.linear_add_with(label, w, y, x, next, None)
    }

    /// The same, and also adds the selected experts' outputs to the stream.
    ///
    /// # Errors
    /// As [`Builder::linear`].
    pub fn linear_add_with(
        &mut self,
        label: &str,
        w: &Weight,
        y: &Input,
        x: &Tensor,
        next: &Norm,
        slots: Option<&Slots>,
    ) -> Result<Residual> {
        if self.by_tiles() {
            return self.mul_mm_normed(label, w, &y.tensor, (x, true), slots, next);
        }
        if let Some(slots) = slots {
            self.moe_combine("moe.sum", &slots.routed.weights, &slots.y, x)?;
        }
        self.mul_mv_add(label, w, y, x, next)
    }

    /// w · x {rows of w} of every row, for a step that can sum its parts.
    ///
    /// # Errors
    /// As [`Builder::linear`].
    pub fn linear_summands(&mut self, label: &str, w: &Weight, x: &Input) -> Result<Summands> {
        if self.by_tiles() { self.mul_mm_summands(label, w, &x.tensor) } else { Ok(self.linear(label, w, x)?.into()) }
    }

    /// The query {rows of w}, or the compressed query, to which the norm `next` is applied next, and the latent with
    /// its rotary key {rows of `kv_a`}, both computed from h.
    ///
    /// # Errors
    /// As [`Builder::linear`].
    pub fn query_and_latent(
        &mut self,
        label: &str,
        w: &Weight,
        kv_a: &Weight,
        h: &Input,
        next: Option<&Norm>,
    ) -> Result<(Residual, Summands)> {
        if !self.by_tiles() && self.target().fusions.latent {
            let (q, kv) = self.mul_mv_pair("attn_qkv_a", [label, "attn_kv_a"], w, kv_a, h, next)?;
            return Ok((q, kv.into()));
        }
        let q = self.tensor_with_stride(label, [w.shape[1], self.rows()], w.shape[1]);
        if let Some(next) = next.filter(|_| self.by_tiles() && self.suits_pair([w, kv_a]))
            && let Some((parts, kv)) = self.mul_mm_pair("attn_qkv_a", [w, kv_a], &h.tensor)?
        {
            let normed = self.sum_normed(&format!("{label}.sum"), &parts, (&q, false), None, next)?;
            return Ok((Residual { normed: Some(normed), ..Residual::from(q) }, kv));
        }
        let q = match next {
            Some(next) if self.by_tiles() => self.mul_mm_normed(label, w, &h.tensor, (&q, false), None, next)?,
            _ => {
                self.linear_into(label, w, h, &q)?;
                q.into()
            }
        };
        Ok((q, self.linear_summands("attn_kv_a", kv_a, h)?))
    }

    /// q {rows of w} = w · x, the heads' queries from the compressed ones. Also writes the KV rows of kv, with the norm
    /// of their latents, to the cache.
    ///
    /// # Errors
    /// As [`Builder::linear`].
    pub fn query_up(
        &mut self,
        w: &Weight,
        x: &Input,
        q: &Tensor,
        (kv, norm, cache): (&Summands, &Norm, &Cache),
    ) -> Result<Option<Rounded>> {
        if !self.by_tiles() && self.target().fusions.cache {
            return self.query_up_kv_write("attn_q", w, x, q, &kv.tensor, norm, cache);
        }
        self.linear_into("attn_q", w, x, q)?;
        self.kv_write("kv_write", *kv, norm, cache)?;
        Ok(None)
    }

    /// The heads' queries {rank + rotary} for attention over the latents, from q {nope + rotary}: the first part times
    /// its head's matrix of `k_b` {nope, rank, heads}, followed by the rotary part, rotated.
    ///
    /// # Errors
    /// As [`Builder::linear`].
    fn absorbed_queries(&mut self, k_b: &Weight, q: &Input, rotary: usize) -> Result<Tensor> {
        let [nope, rank, heads] = k_b.shape;
        let shape = [rank + rotary, heads * self.rows()];
        let y = self.tensor_with_stride("attn_q_absorbed", shape, Cache::row_values(rank, rotary));
        if !self.by_tiles() && self.target().fusions.absorb {
            self.absorb_query("attn_k_b", k_b, q, &y)?;
            return Ok(y);
        }
        if self.by_tiles() && self.target().fusions.absorb && self.mul_mm_rotating("attn_k_b", k_b, &q.tensor, &y)? {
            return Ok(y);
        }
        let first = |tensor: &Tensor, values| Tensor { shape: [values, shape[1]], ..*tensor };
        self.linear_into("attn_k_b", k_b, &Input::from(&first(&q.tensor, nope)), &first(&y, rank))?;
        self.rope_query("rope_query", &q.tensor, rotary, &y)?;
        Ok(y)
    }

    /// The outputs {value width · heads} of attention of the queries q {nope + rotary, heads of every row} over the
    /// cache, with scores times `scale`. Many rows attend over expanded keys and values, fewer over the latents: then
    /// each head's matrix of `k_b` projects its queries to the latent space, and that of `v_b` projects its outputs
    /// back.
    ///
    /// # Errors
    /// As [`Builder::linear`].
    pub fn attention(&mut self, by: LatentWeights<'_>, q: &Input, cache: &Cache, scale: f32) -> Result<Input> {
        if let Some(segments) = self.segments(by, cache) {
            let y = self.mla_attention_expanded("attention", by, (&q.tensor, cache, scale), segments)?;
            let joined = y.shape[0] * y.per_row();
            return Ok(Input::from(&Tensor { shape: [joined, y.rows], stride: joined, ..y }));
        }
        let absorbed = self.absorbed_queries(by.k_b, q, cache.rotary)?;
        self.latent_attention(by.v_b, &absorbed, cache, scale)
    }

    /// The same with absorbed queries.
    fn latent_attention(&mut self, v_b: &Weight, q: &Tensor, cache: &Cache, scale: f32) -> Result<Input> {
        let ([rank, width, heads], rows) = (v_b.shape, self.rows());
        let joined = width * heads;
        if self.by_tiles() {
            let deep = self.depth() > DEEP + self.rows_alone() as u64;
            let latent = self.mla_attention_batch("attention", &BatchAttention { q, cache, scale, deep })?;
            let y = self.tensor_with_stride("attn_v_b", [joined, rows], joined.next_multiple_of(4));
            self.mul_mm_into("attn_v_b", v_b, &latent, &Tensor { shape: [width, heads * rows], stride: width, ..y })?;
            return Ok(Input::from(&y));
        }
        let parts = match self.suits_matrices(q, cache) {
            true => self.mla_attention_matrix("attention", q, cache, scale, self.matrix_splits(heads))?,
            false => self.mla_attention("attention", q, cache, scale, splits(self.target(), rows))?,
        };
        let y = self.tensor_with_stride("attn_v_b", [width, heads * rows], width);
        let mut rounded = None;
        if self.target().fusions.merge {
            rounded = self.mla_output("attn_v_b", v_b, &parts, &y)?;
        } else {
            let latent = self.tensor("merge", [rank, heads * rows]);
            self.mla_merge("merge", &parts, &latent)?;
            self.mul_mv_into("attn_v_b", v_b, &Input::from(&latent), &y)?;
        }
        let stride = if rows == 1 { joined.next_multiple_of(4) } else { joined };
        Ok(Input { tensor: Tensor { shape: [joined, rows], stride, pitch: stride, ..y }, norm: None, rounded })
    }

    /// y {rows} = silu(gate · x) · (up · x), for gate and up {columns, rows} and x {columns}.
    ///
    /// # Errors
    /// As [`Builder::linear`].
    pub fn gated(&mut self, label: &str, gate: &Weight, up: &Weight, x: &Input) -> Result<Input> {
        if self.by_tiles() {
            return Ok(Input::from(&self.gate_up_mm(label, gate, up, &x.tensor)?));
        }
        self.gate_up(label, gate, up, x)
    }

    /// Whether the first half of the selected and shared experts is one step, and their second half another.
    pub fn fuses_experts(&self, halves: &GateUp<'_>) -> bool {
        !self.by_tiles() && self.target().fusions.experts && halves.buffers() <= self.target().buffers
    }

    /// The first half of the selected and of the shared experts, for few rows.
    ///
    /// # Errors
    /// As [`Builder::linear`].
    pub fn experts_gate_up(&mut self, halves: &GateUp<'_>, router: &Router<'_>, h: &Input) -> Result<Hidden> {
        let (label, top_k) = ("moe.gate_up", router.routing.top_k);
        let routed = match self.target().routes_apart() || self.groups_experts(label, halves, top_k, h) {
            true => Some(self.route("moe.route", router.logits, router.bias, router.routing)?),
            false => None,
        };
        let selection = routed.as_ref().map_or(Selection::Each(router), Selection::Made);
        self.moe_gate_up(label, halves, &selection, h)
    }

    /// expert(h) of the selected experts, by tiles, and that of shared experts if [they are
    /// joined](Self::joins_experts). The results remain to be multiplied by their weights and summed.
    ///
    /// # Errors
    /// As [`Builder::linear`].
    pub fn experts(
        &mut self,
        weights: &ExpertWeights<'_>,
        shared: Option<&ExpertWeights<'_>>,
        router: &Router<'_>,
        h: &Input,
    ) -> Result<Slots> {
        let h = match &h.norm {
            Some(norm) => self.rms_norm("ffn_norm", &h.tensor, norm)?,
            None => h.tensor,
        };
        self.experts_mm("moe", weights, shared, router, &h)
    }
}
