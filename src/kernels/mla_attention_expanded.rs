//! Attention of many rows of one sequence over keys and values that are written out, a segment of the KV rows at a time.

use super::computes::ExpandedAttention;
use super::expand_kv::{Expanded, LatentWeights, TOKENS};
use super::kv_write::Cache;
use super::mla_attention::HALF_UNIT;
use super::{Kernel, expect_shape};
use crate::error::Result;
use crate::gpu::Matrices;
use crate::plan::{Builder, Cost, PART_FIELDS, Target, Team, Tensor, VariantBuilder, readings};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mla_attention_expanded.wgsl");
const WORKGROUP: usize = 256;
/// Rows of a workgroup: each of its subgroups has sixteen.
const ROWS: usize = WORKGROUP / 32 * 16;
/// Invocations that turn a row's scores into weights.
const LANES: usize = 2;
/// The widest keys and values whose matrices an invocation can hold beside each other.
const WIDEST: usize = 256;
/// The narrowest keys: two tiles of them have to leave room for sixteen columns of all rows' queries.
const NARROWEST: usize = 64;
/// Bytes of workgroup memory that tiles, scores and weights take at most.
const SHARED_BYTES: usize = 48 << 10;
/// KV rows of a segment at most: those of GLM-4.7-Flash take 84 MB.
const SEGMENT: usize = 4096;
/// Rows from which on it pays to write out keys and values.
const MANY_ROWS: usize = 1024;
/// The largest error of outputs, which are averages of values of about 1: keys, values, queries and weights are f16.
pub(crate) const BOUND: f64 = 4e-3;

pub(super) const KERNEL: Kernel =
    Kernel { name: "mla_attention_expanded", op: OP, params: PART_FIELDS, matrices: &[Matrices::Sixteen] };

/// The KV rows that attention takes at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segments {
    /// KV rows of a segment.
    pub length: usize,
    /// How many segments there may be.
    pub count: usize,
}

impl Segments {
    /// Those of a cache that holds `depth` KV rows at most.
    fn of(depth: usize) -> Self {
        let length = depth.next_power_of_two().clamp(TOKENS, SEGMENT);
        Self { length, count: depth.div_ceil(length) }
    }
}

impl Builder {
    /// The segments that attention takes, if the plan is of so many rows that it pays to write out keys and values, and if
    /// shapes and target suit.
    pub(super) fn segments(&self, by: LatentWeights<'_>, cache: &Cache) -> Option<Segments> {
        let pays = self.by_tiles() && self.one_sequence() && self.rows() >= MANY_ROWS;
        let exact = by.k_b.quant.exceeds_half() || by.v_b.quant.exceeds_half();
        let depth = usize::try_from(self.depth()).unwrap_or(usize::MAX).max(self.rows());
        (pays && !exact && self.suits_expanded(by, cache)).then(|| Segments::of(depth))
    }

    fn suits_expanded(&self, by: LatentWeights<'_>, cache: &Cache) -> bool {
        let Target { team, matrices, workgroup_bytes, invocations, .. } = *self.target();
        let (key, value) = (by.k_b.shape[0] + cache.rotary, by.v_b.shape[1]);
        let able = matrices == Matrices::Sixteen && team == Team::Subgroup && invocations >= WORKGROUP;
        let fits = |width: usize| width.is_multiple_of(32) && width <= WIDEST;
        able && workgroup_bytes >= SHARED_BYTES && key >= NARROWEST && fits(key) && fits(value) && by.suit(cache)
    }

    /// The outputs {value width, heads} of every row: attention of the queries q {nope + rotary, heads of every row}, whose
    /// rotary part is not rotated yet, over keys and values that are made of the latents.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub(crate) fn mla_attention_expanded(
        &mut self,
        label: &str,
        by: LatentWeights<'_>,
        (q, cache, scale): (&Tensor, &Cache, f32),
        segments: Segments,
    ) -> Result<Tensor> {
        expect_shape(KERNEL.name, "whether the cache suits", self.suits_expanded(by, cache), true)?;
        let (value, heads, rotary) = (by.v_b.shape[1], q.per_row(), cache.rotary);
        let rotated = self.tensor_with_stride("attn_q_rotary", [rotary, heads * self.rows()], rotary);
        self.rope_query("rope_query", q, rotary, &rotated)?;
        let blocks = self.rows().div_ceil(ROWS);
        let expanded = self.expanded("expand_kv", by, cache, segments.length);
        let y = self.tensor_with_stride(label, [value, heads * self.rows()], value);
        let stats = self.tensor_with_stride(&format!("{label}.stats"), [2, heads * self.rows()], 2);
        let bindings = vec![
            self.bound_batch(),
            self.bound("q", q.buffer),
            self.bound("rotated", rotated.buffer),
            self.bound("expanded", expanded.buffer),
            self.bound("y", y.buffer),
            self.bound("stats", stats.buffer),
        ];
        for index in 0..segments.count {
            self.expand_kv("expand_kv", by, cache, &expanded, index)?;
            let reference = ExpandedAttention {
                q: *q,
                rotated,
                k_b: by.k_b.clone(),
                v_b: by.v_b.clone(),
                cache: *cache,
                scale,
                y,
                segment: index * segments.length..(index + 1) * segments.length,
                together: ROWS,
            };
            self.computes(KERNEL.name, reference);
            let products = self.rows() * heads * segments.length * (expanded.key() + value);
            let activations = q.bytes() + 2 * y.bytes() + expanded.bytes() * readings(blocks) as u64;
            let cost = Cost { activations, flops: 2 * products as u64, ..Cost::default() };
            let variant = self.expanded_variant((q, &rotated, &y), &expanded, scale);
            let grid = ([blocks, heads, 1], 0);
            self.step_in_parts_from(label, variant, bindings.clone(), [0, 0, index], grid, cost)?;
        }
        Ok(y)
    }

    fn expanded_variant(
        &self,
        (q, rotated, y): (&Tensor, &Tensor, &Tensor),
        expanded: &Expanded,
        scale: f32,
    ) -> VariantBuilder {
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP)
            .matrices()
            .file(source!("lib/coop16.wgsl"))
            .file(source!("lib/chunks.wgsl"))
            .constant("HEADS", "h", q.per_row())
            .constant("LANES", "", LANES)
            .constant("Q_STRIDE", "", q.stride / 4)
            .constant("Q_PITCH", "", q.pitch / 4)
            .constant("ROTATED_STRIDE", "", rotated.stride / 4)
            .constant("ROTATED_PITCH", "", rotated.pitch / 4)
            .constant("Y_STRIDE", "", y.stride / 4)
            .constant("Y_PITCH", "", y.pitch / 4)
            .real("SCALE", "f", scale)
            .real("WEIGHT_UNIT", "", HALF_UNIT);
        self.batch_files(expanded.files(variant)).file(source!("lib/online_softmax.wgsl"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::kernels::CacheType;
    use crate::quant::QUANTS;

    #[test]
    fn keys_and_values_are_written_out_for_many_rows_of_shapes_that_suit() {
        let able = Target { matrices: Matrices::Sixteen, workgroup_bytes: SHARED_BYTES, ..Target::default() };
        let suits = |target: &Target, rows: usize, [nope, rotary, value]: [usize; 3]| {
            let mut plan = Builder::for_rows(target, 1, rows);
            let cache = plan.latent_cache(CacheType::F16, 128, rotary, rows);
            let quant = QUANTS.iter().find(|quant| !quant.exceeds_half()).unwrap();
            let (k_b, v_b) = (plan.weight("k_b", quant, [nope, 128, 2]), plan.weight("v_b", quant, [128, value, 2]));
            plan.segments(LatentWeights { k_b: &k_b, v_b: &v_b }, &cache).is_some()
        };
        assert!(suits(&able, MANY_ROWS, [192, 64, 256]) && suits(&able, MANY_ROWS, [64, 32, 64]));
        assert!(!suits(&able, MANY_ROWS - 1, [192, 64, 256]), "few rows");
        assert!(!suits(&able, MANY_ROWS, [32, 0, 64]), "a key too narrow");
        assert!(!suits(&able, MANY_ROWS, [256, 64, 256]), "a key too wide");
        let small = Target { workgroup_bytes: 32 << 10, ..able.clone() };
        assert!(!suits(&small, MANY_ROWS, [192, 64, 256]), "little workgroup memory");
    }
}
