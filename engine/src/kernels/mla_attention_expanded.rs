//! Attention of many rows of one sequence over expanded keys and values, one segment of the KV rows at a time.
//!
//! With matrices of 16 x 16 it has a kernel of its own. With matrices of 8 x 8 and without matrices it uses the kernels
//! for attention over the latents: for these, a segment of a head is a cache with other widths.

use super::computes::ExpandedAttention;
use super::expand_kv::{Expanded, LatentWeights, SHORTEST};
use super::kv_write::{Cache, HALVES};
use super::matmul::HALF_RANGE;
use super::mla_attention::{HALF_UNIT, SPAN};
use super::{Kernel, expand_kv_matrix, expect_cache, mla_attention_batch, mla_attention_matrix8};
use crate::error::Result;
use crate::gpu::Matrices;
use crate::plan::{Builder, Cost, PART_FIELDS, Target, Team, Tensor, VariantBuilder, readings};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mla_attention_expanded.wgsl");
/// The file that makes a segment of a head the cache of a kernel for attention over latents, and its part of a label.
const OVER_SEGMENT: (Source, &str) = (source!("lib/over_segment.wgsl"), "segment");
const WORKGROUP: usize = 256;
/// The number of rows of a workgroup: each of its subgroups has sixteen.
const ROWS: usize = WORKGROUP / 32 * 16;
/// The number of invocations that turn a row's scores into weights.
const LANES: usize = 2;
/// The widest keys and values whose matrices fit into an invocation's registers together.
const WIDEST: usize = 256;
/// The narrowest keys: two tiles of them must be large enough to hold sixteen columns of all rows' queries.
const NARROWEST: usize = 64;
/// The maximum number of bytes of workgroup memory for tiles, scores and weights.
const SHARED_BYTES: usize = 48 << 10;
/// The maximum number of KV rows in a segment: those of GLM-4.7-Flash take 84 MB.
const SEGMENT: usize = 4096;
/// The maximum number of bytes in a segment, which every device can bind together with the padding after it.
const SEGMENT_BYTES: usize = 127 << 20;
/// From this many rows on, expanding keys and values pays off, as measured with matrices of 16 x 16 on an H100. The
/// other kernels were not measured.
const MANY_ROWS: usize = 1024;

pub(super) const KERNEL: Kernel =
    Kernel { name: "mla_attention_expanded", op: OP, params: PART_FIELDS, matrices: &[Matrices::Sixteen] };

/// The kind of kernel that computes attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Matrices of 16 x 16.
    Sixteen,
    /// Matrices of 8 x 8.
    Eight,
    /// Tiles in registers.
    Registers,
}

impl Form {
    /// The largest error of outputs, which are averages of values of about 1: keys and values are f16, and for matrices
    /// queries and weights as well.
    pub fn bound(self) -> f64 {
        match self {
            Self::Sixteen => 4e-3,
            Self::Eight => 2e-3,
            Self::Registers => 1e-3,
        }
    }
}

/// The division of the KV rows into segments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segments {
    /// The number of KV rows of a segment.
    pub length: usize,
    /// The maximum number of segments.
    pub count: usize,
}

impl Segments {
    /// The segments of a cache of at most `depth` KV rows, each of which expands to `bytes` bytes.
    fn of(depth: usize, bytes: usize) -> Self {
        let most = (SEGMENT_BYTES / bytes.max(1)).clamp(SHORTEST, SEGMENT);
        let length = depth.next_power_of_two().clamp(SHORTEST, 1 << most.ilog2());
        Self { length, count: depth.div_ceil(length) }
    }
}

impl Builder {
    /// The segments of attention, if the plan has enough rows for expanding keys and values to pay off, and if shapes
    /// and target are suitable.
    pub(super) fn segments(&self, by: LatentWeights<'_>, cache: &Cache) -> Option<Segments> {
        let many = self.target().choices.expanded_rows.unwrap_or(MANY_ROWS);
        let pays = self.by_tiles() && self.one_sequence() && self.rows() >= many;
        let exact = by.k_b.quant.exceeds_half() || by.v_b.quant.exceeds_half();
        let depth = usize::try_from(self.depth()).unwrap_or(usize::MAX).max(self.rows());
        let [key, value] = by.widths(cache);
        let bytes = 2 * by.k_b.shape[2] * (key + value);
        (pays && !exact && self.expanded_form(by, cache).is_some()).then(|| Segments::of(depth, bytes))
    }

    /// The kind of kernel for keys and values of such shapes, if there is one. Without matrices it is probably slower
    /// than attention over the latents with them.
    fn expanded_form(&self, by: LatentWeights<'_>, cache: &Cache) -> Option<Form> {
        let Target { team, matrices, workgroup_bytes, invocations, buffers, .. } = *self.target_for(KERNEL.name);
        if !by.suit(cache) || by.buffers() > buffers || invocations < WORKGROUP {
            return None;
        }
        let [key, value] = by.widths(cache);
        let fits = |width: usize| width.is_multiple_of(32) && width <= WIDEST;
        let able = matrices == Matrices::Sixteen && team == Team::Subgroup && workgroup_bytes >= SHARED_BYTES;
        if able && key >= NARROWEST && fits(key) && fits(value) && expand_kv_matrix::whole(by, cache) {
            return Some(Form::Sixteen);
        }
        if self.suits_segments8([key, value]) {
            return Some(Form::Eight);
        }
        let by_matrices = self.suits_row_matrices(cache) || self.suits_matrices8(cache);
        (!by_matrices).then_some(Form::Registers)
    }

    /// The outputs {value width, heads} of every row: attention of the queries q {nope + rotary, heads of every row},
    /// whose rotary part is not rotated yet, over keys and values that are expanded from the latents.
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
        let form = self.expanded_form(by, cache);
        expect_cache(KERNEL.name, form.is_some())?;
        let form = form.unwrap_or(Form::Registers);
        let (value, heads, rotary) = (by.v_b.shape[1], q.per_row(), cache.rotary);
        let rotated = self.tensor_with_stride("attn_q_rotary", [rotary, heads * self.rows()], rotary);
        self.rope_query("rope_query", q, rotary, &rotated)?;
        let expanded = self.expanded("expand_kv", by, cache, segments.length);
        let y = self.tensor_with_stride(label, [value, heads * self.rows()], value);
        let stats = self.tensor_with_stride(&format!("{label}.stats"), [2, heads * self.rows()], 2);
        let keys_and_values = if form == Form::Sixteen { "expanded" } else { "cache" };
        let bindings = vec![
            self.bound_batch(),
            self.bound("q", q.buffer),
            self.bound("rotated", rotated.buffer),
            self.bound(keys_and_values, expanded.buffer),
            self.bound("y", y.buffer),
            self.bound("stats", stats.buffer),
        ];
        for index in 0..segments.count {
            self.expand_kv("expand_kv", by, cache, &expanded, index)?;
            let (kernel, variant, together) = match form {
                Form::Sixteen => by_sixteen(heads),
                Form::Eight => self.by_eight(heads, &expanded),
                Form::Registers => by_registers(heads, &expanded),
            };
            let reference = ExpandedAttention {
                q: *q,
                rotated,
                k_b: by.k_b.clone(),
                v_b: by.v_b.clone(),
                cache: *cache,
                scale,
                y,
                segment: index * segments.length..(index + 1) * segments.length,
                together,
                bound: form.bound(),
            };
            self.computes(kernel, reference);
            let blocks = self.rows().div_ceil(together);
            let products = self.rows() * heads * segments.length * (expanded.key() + value);
            let activations = q.bytes() + 2 * y.bytes() + expanded.bytes() * readings(blocks) as u64;
            let cost = Cost { activations, flops: 2 * products as u64, ..Cost::default() };
            let variant = variant
                .constant("Q_STRIDE", "", q.stride / 4)
                .constant("Q_PITCH", "", q.pitch / 4)
                .constant("ROTATED_STRIDE", "", rotated.stride / 4)
                .constant("ROTATED_PITCH", "", rotated.pitch / 4)
                .constant("Y_STRIDE", "", y.stride / 4)
                .constant("Y_PITCH", "", y.pitch / 4)
                .real("SCALE", "f", scale);
            let variant = self.batch_files(expanded.files(variant));
            let grid = ([blocks, heads, 1], 0);
            self.step_in_parts_from(label, variant, bindings.clone(), [0, 0, index], grid, cost)?;
        }
        Ok(y)
    }

    /// The kernel with matrices of 8 x 8 for `heads` heads, and the number of rows that a workgroup computes.
    fn by_eight(&self, heads: usize, expanded: &Expanded) -> (&'static str, VariantBuilder, usize) {
        let (variant, rows) = self.segments8(heads, [expanded.key(), expanded.value()]);
        (mla_attention_matrix8::KERNEL.name, variant.tagged(OVER_SEGMENT), rows)
    }
}

/// The same with matrices of 16 x 16.
fn by_sixteen(heads: usize) -> (&'static str, VariantBuilder, usize) {
    let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP)
        .matrices()
        .file(source!("lib/coop16.wgsl"))
        .file(source!("lib/chunks.wgsl"))
        .constant("HEADS", "h", heads)
        .constant("LANES", "", LANES)
        .real("WEIGHT_UNIT", "", HALF_UNIT)
        .file(source!("lib/online_softmax.wgsl"));
    (KERNEL.name, variant, ROWS)
}

/// The same with tiles in registers.
fn by_registers(heads: usize, expanded: &Expanded) -> (&'static str, VariantBuilder, usize) {
    let (key, value) = (expanded.key(), expanded.value());
    let (variant, rows) = mla_attention_batch::by_registers(heads, key + value, value);
    let variant = variant.constant("SPAN", "t", SPAN).constant("KV_CHUNKS", "", (key + value) / 4);
    let variant = variant.file(HALF_RANGE).file(HALVES.0);
    (mla_attention_batch::KERNEL.name, variant.tagged(OVER_SEGMENT), rows)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::kernels::CacheType;
    use crate::plan::Choices;
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
        let few = Target { choices: Choices { expanded_rows: Some(64), ..Choices::default() }.into(), ..able };
        assert!(suits(&few, 64, [192, 64, 256]) && !suits(&few, 63, [192, 64, 256]), "rows as they are chosen");
        for team in [Team::Subgroup, Team::Workgroup] {
            let plain = &Target { team, buffers: 14, invocations: 256, ..Target::default() };
            assert!(suits(plain, MANY_ROWS, [192, 64, 256]) && suits(plain, MANY_ROWS, [24, 8, 20]));
            assert!(!suits(plain, MANY_ROWS, [24, 8, 18]), "no whole chunks");
        }
    }

    #[test]
    fn a_segment_can_be_bound_anywhere() {
        for (depth, row_bytes, length, count) in [
            (1000, 20 * 1024, 1024, 1),
            (1 << 17, 20 * 1024, 4096, 32),
            (9000, 128 * 640, 1024, 9),
            (5, 1 << 19, 128, 1),
        ] {
            let segments = Segments::of(depth, row_bytes);
            assert_eq!((segments.length, segments.count), (length, count), "{depth} KV rows of {row_bytes} bytes");
            assert!(segments.length * row_bytes <= SEGMENT_BYTES);
        }
    }
}
