//! Expands the latents of a segment of the KV rows to the keys and values of all heads.
//!
//! In GLM-4.7-Flash, attention over the latents costs 1088 products for a pair of tokens and a head, and over expanded
//! keys and values 512. Expanding a KV row takes as many products as projecting a row's queries to the latent space and
//! its outputs back, which is then not necessary. So expanding all KV rows that a batch attends to pays off for many
//! rows: from about 400, if every product took the same time.

use super::computes::ExpandedKv;
use super::errors::SUM;
use super::kv_write::{Cache, pool_files};
use super::matvec::buffers_of;
use super::{Kernel, expand_kv_matrix, expect_cache, expect_multiple, expect_shape};
use crate::error::Result;
use crate::plan::{BufferRef, Builder, Cost, PART_FIELDS, VariantBuilder, Weight};
use crate::quant::Arithmetic;
use crate::wgsl::{Source, source};

const OP: Source = source!("op/expand_kv.wgsl");
const WORKGROUP: usize = 256;
/// The number of KV rows of a tile.
const TOKENS: usize = 64;
/// The minimum number of KV rows in a segment, in whole tiles of either kernel.
pub(super) const SHORTEST: usize = 128;
/// The number of KV rows after the last head's, which attention with matrices of 16 x 16 may read but does not use.
const PADDING_ROWS: usize = 64;
/// The number of columns of keys or values of a tile, in either kernel.
const COLUMNS: usize = 64;
/// The number of storage buffers besides the weights': the batch, the pages, the cache and the output.
const OTHERS: usize = 4;

pub(super) const KERNEL: Kernel = Kernel { name: "expand_kv", op: OP, params: PART_FIELDS, matrices: &[] };

/// Whether the kernel of this name expands keys and values.
pub(crate) fn expands_kv(kernel: &str) -> bool {
    [KERNEL.name, expand_kv_matrix::KERNEL.name].contains(&kernel)
}

/// The matrices that expand a latent to keys and values.
#[derive(Clone, Copy)]
pub struct LatentWeights<'a> {
    /// The matrices of keys, transposed, because queries are multiplied by them {nope, rank, heads}.
    pub k_b: &'a Weight,
    /// The matrices of values {rank, value width, heads}.
    pub v_b: &'a Weight,
}

/// Memory for the keys and values of a segment.
#[derive(Clone, Copy)]
pub(crate) struct Expanded {
    /// The key and the value of each head and KV row, f16.
    pub buffer: BufferRef,
    /// The number of KV rows of a segment: a multiple of [`SHORTEST`].
    pub segment: usize,
    pub heads: usize,
    /// The widths of a key without its rotary part, of the rotary part, and of a value.
    pub widths: [usize; 3],
}

/// A kernel that expands keys and values.
pub(super) struct Expanding {
    pub kernel: &'static str,
    /// Its shader up to the files that both kernels share.
    pub variant: VariantBuilder,
    /// The number of KV rows of a tile.
    pub tokens: usize,
    /// The largest error, relative to the sum of the terms' magnitudes.
    pub bound: f64,
}

impl Expanded {
    /// The width of a key.
    pub fn key(&self) -> usize {
        self.widths[0] + self.widths[1]
    }

    /// The width of a value.
    pub fn value(&self) -> usize {
        self.widths[2]
    }

    /// The size in bytes of a segment.
    pub fn bytes(&self) -> u64 {
        2 * (self.segment * self.heads * (self.key() + self.value())) as u64
    }

    /// Adds the constants and the file that define the layout of keys and values.
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
    /// The widths of a key and of a value that the latents of a cache expand to.
    pub(super) fn widths(&self, cache: &Cache) -> [usize; 2] {
        [self.k_b.shape[0] + cache.rotary, self.v_b.shape[1]]
    }

    /// Whether the latents of a cache can be expanded: in chunks of four.
    pub(super) fn suit(&self, cache: &Cache) -> bool {
        let widths = [self.k_b.shape[0], cache.rotary, self.v_b.shape[1], cache.rank];
        cache.ty.suits_matrices() && widths.into_iter().all(|width| width.is_multiple_of(4))
    }

    /// The number of storage buffers that the kernel binds.
    pub(super) fn buffers(&self) -> usize {
        buffers_of(&[self.k_b, self.v_b]) + OTHERS
    }
}

impl Builder {
    /// Memory for the keys and values of `segment` KV rows.
    pub(crate) fn expanded(&mut self, label: &str, by: LatentWeights<'_>, cache: &Cache, segment: usize) -> Expanded {
        let ([nope, _, heads], [_, value, _]) = (by.k_b.shape, by.v_b.shape);
        let words = (nope + cache.rotary + value) / 2; // of two f16
        let buffer = self.tensor_with_stride(label, [words, heads * segment + PADDING_ROWS], words).buffer;
        Expanded { buffer, segment, heads, widths: [nope, cache.rotary, value] }
    }

    /// Expands those KV rows of segment `index` that the batch attends to.
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
        let Expanding { kernel, variant, tokens, bound } = if self.expands_by_matrices(by, cache) {
            self.expanding_by_matrices(by, cache)
        } else {
            by_registers(by, cache)
        };
        expect_cache(kernel, by.suit(cache))?;
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
        self.computes(kernel, ExpandedKv { k_b, v_b, cache, to: expanded.buffer, rows, bound });
        self.step_in_parts_from(label, variant, bindings, [0, 0, index], (grid, 0), cost)
    }
}

/// The kernel without matrices.
fn by_registers(by: LatentWeights<'_>, cache: &Cache) -> Expanding {
    let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP).constant("LATENT", "", cache.rank / 4);
    let variant = cache.chunk_files(variant);
    let variant = variant.decode("k", by.k_b.quant).decode("v", by.v_b.quant);
    Expanding { kernel: KERNEL.name, variant, tokens: TOKENS, bound: SUM }
}
