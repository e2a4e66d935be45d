//! Writes out the keys and values of all heads for a segment of the KV rows.
//!
//! Attention over the latent costs, for a pair of tokens and a head, 1088 products in GLM-4.7-Flash; over keys and values
//! that are written out it costs 512. To write out those of a KV row takes as many products as bringing a row's queries to
//! the latent and its outputs back, which then falls away. So it pays to write out all KV rows that a batch attends to
//! where it has many rows, about 400 if every product took as long.

use super::computes::ExpandedKv;
use super::kv_write::{Cache, pool_files};
use super::matvec::buffers_of;
use super::{Kernel, expand_kv_matrix, expect_multiple, expect_shape};
use crate::error::Result;
use crate::plan::{BufferRef, Builder, Cost, PART_FIELDS, VariantBuilder, Weight};
use crate::quant::Arithmetic;
use crate::wgsl::{Source, source};

const OP: Source = source!("op/expand_kv.wgsl");
const WORKGROUP: usize = 256;
/// KV rows of a tile.
const TOKENS: usize = 64;
/// KV rows that a segment has at least, whole tiles of either kernel.
pub(super) const SHORTEST: usize = 128;
/// KV rows behind the last head's, which attention by matrices of 16 x 16 may read and does not use.
const BEHIND: usize = 64;
/// Columns of keys or of values of a tile, of either kernel.
const COLUMNS: usize = 64;
/// Storage buffers beside those of the weights: the batch, the pages, the cache and what is written.
const OTHERS: usize = 4;

pub(super) const KERNEL: Kernel = Kernel { name: "expand_kv", op: OP, params: PART_FIELDS, matrices: &[] };

/// Whether a kernel of this name writes out keys and values.
pub(crate) fn writes_out(kernel: &str) -> bool {
    [KERNEL.name, expand_kv_matrix::KERNEL.name].contains(&kernel)
}

/// The matrices that make keys and values of a latent.
#[derive(Clone, Copy)]
pub struct LatentWeights<'a> {
    /// Those of keys, transposed: queries are multiplied with them {nope, rank, heads}.
    pub k_b: &'a Weight,
    /// Those of values {rank, value width, heads}.
    pub v_b: &'a Weight,
}

/// Memory for the keys and values of a segment.
#[derive(Clone, Copy)]
pub(crate) struct Expanded {
    /// Of each head and KV row its key and its value, f16.
    pub buffer: BufferRef,
    /// KV rows of a segment: a multiple of [`SHORTEST`].
    pub segment: usize,
    pub heads: usize,
    /// Values of a key without its rotary part, of the rotary part, and of a value.
    pub widths: [usize; 3],
}

/// A kernel that writes keys and values out.
pub(super) struct Expanding {
    pub kernel: &'static str,
    /// Its shader up to what both kernels have.
    pub variant: VariantBuilder,
    /// KV rows of a tile.
    pub tokens: usize,
}

impl Expanded {
    /// Values of a key.
    pub fn key(&self) -> usize {
        self.widths[0] + self.widths[1]
    }

    /// Values of a value.
    pub fn value(&self) -> usize {
        self.widths[2]
    }

    /// Bytes of a segment.
    pub fn bytes(&self) -> u64 {
        2 * (self.segment * self.heads * (self.key() + self.value())) as u64
    }

    /// Adds the constants and the file that tell where keys and values lie.
    pub fn files(&self, variant: VariantBuilder) -> VariantBuilder {
        let [nope, rotary, value] = self.widths;
        variant
            .constant("SEGMENT", "g", self.segment)
            .constant("NOPE", "n", nope)
            .constant("ROTARY", "o", rotary)
            .constant("KEY", "", self.key())
            .constant("VALUE", "v", value)
            .file(source!("lib/segments.wgsl"))
    }
}

impl LatentWeights<'_> {
    /// Values of a key of the latents of a cache, and of a value.
    pub(super) fn widths(&self, cache: &Cache) -> [usize; 2] {
        [self.k_b.shape[0] + cache.rotary, self.v_b.shape[1]]
    }

    /// Whether keys and values can be made of the latents of a cache: in chunks of four.
    pub(super) fn suit(&self, cache: &Cache) -> bool {
        let widths = [self.k_b.shape[0], cache.rotary, self.v_b.shape[1], cache.rank];
        cache.ty.suits_matrices() && widths.into_iter().all(|width| width.is_multiple_of(4))
    }

    /// Storage buffers that writing them out binds.
    pub(super) fn buffers(&self) -> usize {
        buffers_of(&[self.k_b, self.v_b]) + OTHERS
    }
}

impl Builder {
    /// Memory for keys and values of `segment` KV rows.
    pub(crate) fn expanded(&mut self, label: &str, by: LatentWeights<'_>, cache: &Cache, segment: usize) -> Expanded {
        let ([nope, _, heads], [_, value, _]) = (by.k_b.shape, by.v_b.shape);
        let words = (nope + cache.rotary + value) / 2; // of two f16
        let buffer = self.tensor_with_stride(label, [words, heads * segment + BEHIND], words).buffer;
        Expanded { buffer, segment, heads, widths: [nope, cache.rotary, value] }
    }

    /// Writes out the keys and values of the KV rows of segment `index`, as far as the batch attends to them.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub(crate) fn expand_kv(
        &mut self,
        label: &str,
        by: LatentWeights<'_>,
        cache: &Cache,
        expanded: &Expanded,
        index: usize,
    ) -> Result<()> {
        let LatentWeights { k_b, v_b } = by;
        let Expanded { heads, widths: [nope, _, value], segment, .. } = *expanded;
        let Expanding { kernel, variant, tokens } = if self.expands_by_matrices(by, cache) {
            self.expanding_by_matrices(by, cache)
        } else {
            by_registers(by, cache)
        };
        expect_shape(kernel, "whether the cache suits", by.suit(cache), true)?;
        expect_shape(kernel, &k_b.name, k_b.shape[1], cache.rank)?;
        expect_shape(kernel, &v_b.name, v_b.shape[0], cache.rank)?;
        expect_shape(kernel, &v_b.name, v_b.shape[2], heads)?;
        expect_multiple(kernel, "segment", segment, SHORTEST)?;
        let variant = self
            .bits_files(variant, Arithmetic::Float)
            .constant("RANK", "c", cache.rank)
            .constant("KV_ROW", "", Cache::row_values(cache.rank, cache.rotary))
            .constant("k_GROUPS", "", k_b.groups())
            .constant("v_GROUPS", "", v_b.groups());
        let variant = pool_files(self.batch_files(expanded.files(variant)));
        let mut bindings = vec![self.bound_batch(), self.bound_pages(), self.bound("cache", cache.buffer)];
        bindings.push(self.bound("expanded", expanded.buffer));
        bindings.extend(self.bound_weight("k", k_b));
        bindings.extend(self.bound_weight("v", v_b));
        let tiles = nope.div_ceil(COLUMNS) + value.div_ceil(COLUMNS);
        let grid = [segment / tokens, heads * tiles, 1];
        let weights = [k_b, v_b].map(|w| w.matrix_bytes() * heads as u64).into_iter().sum();
        let products = segment * heads * tiles * COLUMNS * cache.rank;
        let activations = expanded.bytes() + cache.row_bytes() * segment as u64;
        let cost = Cost { weights, activations, flops: 2 * products as u64, ..Cost::default() };
        let [k_b, v_b] = [k_b, v_b].map(Weight::clone);
        let (cache, rows) = (*cache, index * segment..(index + 1) * segment);
        self.computes(kernel, ExpandedKv { k_b, v_b, cache, to: expanded.buffer, rows });
        self.step_in_parts_from(label, variant, bindings, [0, 0, index], (grid, 0), cost)
    }
}

/// The kernel without matrices.
fn by_registers(by: LatentWeights<'_>, cache: &Cache) -> Expanding {
    let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP).constant("LATENT", "", cache.rank / 4);
    let variant = cache.chunk_files(variant);
    let variant = variant.decode("k", by.k_b.quant).decode("v", by.v_b.quant);
    Expanding { kernel: KERNEL.name, variant, tokens: TOKENS }
}
