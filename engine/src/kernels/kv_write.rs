//! Writes the KV rows of a batch: the latent cache's entry for each token.
//!
//! A KV row is the normalised latent, followed by the rotated rotary key. All heads share it; there is no separate
//! cache of values. With a cache of f16, the logits of the demonstration model differ from those of other programs by
//! up to 8.5e-4 (relative L2), and with f32 by up to 3.3e-6. Apart from the cache and from products of bytes or
//! matrices, kernels compute in f32.

use super::computes::KvRows;
use super::kv_blocks::{BLOCK, BlockRow};
use super::matmul::HALF_RANGE;
use super::matvec::Norm;
use super::{Kernel, Summands, expect_multiple, expect_shape, params};
use crate::error::Result;
use crate::gpu::Matrices;
use crate::plan::{Bound, BufferRef, Builder, Cost, PAGE, Tensor, VariantBuilder, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/kv_write.wgsl");
const WORKGROUP: usize = 256;

params! { pitch: u32, parts: u32, apart: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "kv_write", op: OP, params: Params::FIELDS, matrices: &[] };

/// The type of the values of the cache. Serde writes `f16`, `f32` and `q8_0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CacheType {
    /// Half the memory; moves logits by up to 1e-3 (relative L2).
    F16,
    /// Exact.
    F32,
    /// The latent rounded to bytes in blocks of 32 with a scale, and the rotary key in f16: 58 % of the memory of f16
    /// for GLM-4.7-Flash. Only for latents of whole blocks.
    Q8_0,
}

impl CacheType {
    /// All types.
    pub const ALL: [Self; 3] = [Self::F16, Self::F32, Self::Q8_0];

    /// Its name in options and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::Q8_0 => "q8_0",
        }
    }

    /// The distance in bytes from one token's KV row to the next in a layer, for a latent of `rank` values and a rotary
    /// key of `rotary`.
    pub fn row_bytes(self, rank: usize, rotary: usize) -> usize {
        match self {
            Self::F16 => 2 * Cache::row_values(rank, rotary),
            Self::F32 => 4 * Cache::row_values(rank, rotary),
            Self::Q8_0 => BlockRow { rank, rotary }.bytes(),
        }
    }

    /// Whether it can store latents of `rank` values.
    pub fn holds(self, rank: usize) -> bool {
        self != Self::Q8_0 || rank.is_multiple_of(BLOCK)
    }

    /// Whether matrices of f16 can multiply its values.
    pub(super) fn suits_matrices(self) -> bool {
        self != Self::F32
    }

    /// The largest error of outputs of about 1 in kernels that convert its values to f16: the same as from rounding
    /// queries to f16.
    pub(crate) fn bound_of_halves(self) -> f64 {
        if self == Self::Q8_0 { 2e-3 } else { 0.0 }
    }
}

/// The cache of one layer: the latent and the rotary key of every token.
#[derive(Debug, Clone, Copy)]
pub struct Cache {
    /// Where it is.
    pub buffer: BufferRef,
    /// The type of its values.
    pub ty: CacheType,
    /// The number of values of the latent.
    pub rank: usize,
    /// The number of values of the rotary key.
    pub rotary: usize,
}

impl Cache {
    /// The number of values from one token's KV row to the next. The padding is zero.
    pub fn row_values(rank: usize, rotary: usize) -> usize {
        (rank + rotary).next_multiple_of(8)
    }

    /// The distance in bytes from one token's KV row to the next.
    pub fn row_bytes(&self) -> u64 {
        self.ty.row_bytes(self.rank, self.rotary) as u64
    }

    /// The cost of attention of `rows` queries for each KV row in the cache, which is read from memory `readings`
    /// times.
    pub(super) fn cost(&self, rows: usize, readings: usize) -> Cost {
        let products = Self::row_values(self.rank, self.rotary) + self.rank;
        let cache = self.row_bytes().saturating_mul(readings as u64);
        Cost { cache, cache_flops: 2 * products as u64 * rows as u64, ..Cost::default() }
    }

    /// Fails unless kv {rank + rotary, tokens} and the norm's weights {rank} fit this cache.
    pub(super) fn expect_kv_rows(&self, op: &'static str, kv: &Tensor, norm: &Weight, tokens: usize) -> Result<()> {
        expect_shape(op, "kv", kv.shape[0], self.rank + self.rotary)?;
        expect_shape(op, "kv's vectors", kv.shape[1], tokens)?;
        expect_multiple(op, "kv's stride", kv.stride, 4)?;
        expect_shape(op, &norm.name, norm.shape[0], self.rank)?;
        expect_multiple(op, "latent", self.rank, if self.ty == CacheType::Q8_0 { BLOCK } else { 4 })?;
        expect_multiple(op, "rotary key", self.rotary, 2)
    }

    /// Adds the file that reads chunks of four values. It needs LATENT, the number of chunks of a latent.
    pub(super) fn chunk_files(&self, variant: VariantBuilder) -> VariantBuilder {
        let variant = variant.constant("KV_CHUNKS", "", Self::row_values(self.rank, self.rotary) / 4);
        match self.ty {
            CacheType::F16 => variant.file(HALF_RANGE).tagged(HALVES),
            CacheType::F32 => variant.tagged((source!("lib/kv_f32.wgsl"), "f32")),
            CacheType::Q8_0 => self.block_constants(variant).tagged((source!("lib/kv_blocks.wgsl"), "q8")),
        }
    }

    /// Adds the file that kernels with such matrices use to load tiles of KV rows to workgroup memory. For matrices of
    /// 8 x 8, which means Apple's GPUs, each value is a separate variable. With matrices of 16 x 16 on an H100, that
    /// made a token at a depth of 32768 6 % slower.
    pub(super) fn share_files(&self, variant: VariantBuilder, matrices: Matrices) -> VariantBuilder {
        let named = matrices == Matrices::Eight;
        if self.ty == CacheType::Q8_0 {
            let variant = self.half_files(variant.file(source!("lib/chunks.wgsl")));
            let (loops, names) = (source!("lib/kv_share_blocks.wgsl"), source!("lib/kv_share_blocks_named.wgsl"));
            return variant.tagged((if named { names } else { loops }, "q8"));
        }
        variant.file(if named { NAMED_SHARE_OF_HALVES } else { source!("lib/kv_share_f16.wgsl") })
    }

    /// Adds the file that reads eight values at a time.
    pub(super) fn eights_files(&self, variant: VariantBuilder) -> VariantBuilder {
        if self.ty == CacheType::Q8_0 {
            return self.half_files(variant).tagged((source!("lib/kv_eights_blocks.wgsl"), "q8"));
        }
        variant.file(source!("lib/kv_eights_f16.wgsl"))
    }

    fn half_files(&self, variant: VariantBuilder) -> VariantBuilder {
        self.block_constants(variant).file(source!("lib/kv_block_halves.wgsl"))
    }

    /// The offsets of the parts of a KV row in blocks, in words.
    fn block_constants(&self, variant: VariantBuilder) -> VariantBuilder {
        let row = BlockRow { rank: self.rank, rotary: self.rotary };
        variant.constant("KV_WORDS", "", row.bytes() / 4).constant("SCALES", "", row.scales() / 4)
    }

    /// Adds the files that write KV rows, to follow those of the batch. The caller must provide `kv_chunk` and the
    /// norm's EPSILON.
    pub(super) fn kv_row_files(&self, variant: VariantBuilder) -> VariantBuilder {
        let variant = pool_files(variant).constant("RANK", "c", self.rank);
        let variant = match self.ty {
            CacheType::Q8_0 => {
                let variant = self.block_constants(variant.file(HALF_RANGE));
                variant.tagged((source!("lib/kv_row_blocks.wgsl"), "q8"))
            }
            _ => self.chunk_files(variant).file(source!("lib/kv_row_chunks.wgsl")),
        };
        variant.file(source!("lib/rope.wgsl")).file(source!("lib/kv_row.wgsl"))
    }
}

/// The file that reads f16 in chunks of four, KV_CHUNKS in a KV row, and its part of a label.
pub(super) const HALVES: (Source, &str) = (source!("lib/kv_f16.wgsl"), "f16");
/// The file that kernels with matrices of 8 x 8 use to load tiles of KV rows of f16.
pub(super) const NAMED_SHARE_OF_HALVES: Source = source!("lib/kv_share_f16_named.wgsl");

/// Adds the file that finds KV rows in the pool of pages.
pub(super) fn pool_files(variant: VariantBuilder) -> VariantBuilder {
    variant.constant("PAGE", "", PAGE).file(source!("lib/kv_pages.wgsl"))
}

impl Builder {
    /// The cache of the current layer, with pages for `tokens` tokens.
    pub fn latent_cache(&mut self, ty: CacheType, rank: usize, rotary: usize, tokens: usize) -> Cache {
        self.room_for_pages(tokens.div_ceil(PAGE));
        let bytes = (ty.row_bytes(rank, rotary) as u64).saturating_mul(tokens.next_multiple_of(PAGE) as u64);
        Cache { buffer: self.cache("cache", bytes), ty, rank, rotary }
    }

    /// Writes the KV rows of a batch to the cache: the first `rank` values of kv {rank + rotary, rows}, normalised,
    /// then the rotary rest, rotated.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn kv_write(&mut self, label: &str, kv: impl Into<Summands>, norm: &Norm, cache: &Cache) -> Result<()> {
        let tokens = self.rows();
        let summands = kv.into();
        let kv = &summands.tensor;
        cache.expect_kv_rows(KERNEL.name, kv, &norm.weight, tokens)?;
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP).usual_team(self.target_for(KERNEL.name)).real(
            "EPSILON",
            "e",
            norm.epsilon,
        );
        let variant = cache.kv_row_files(self.batch_files(variant));
        let bindings = self.bound_kv_rows(&summands, &norm.weight, cache);
        let activations = summands.bytes() + cache.row_bytes() * tokens as u64;
        let cost = Cost { weights: norm.weight.matrix_bytes(), activations, ..Cost::default() };
        self.computes(KERNEL.name, KvRows { kv: summands, norm: norm.clone(), cache: *cache });
        let [pitch, apart] = [kv.pitch, summands.apart].map(|values| (values / 4) as u32);
        let params = Params { pitch, parts: summands.parts as u32, apart };
        self.step(label, variant, bindings, &params, [tokens, 1, 1], cost)
    }

    /// The bindings of the files that write KV rows.
    pub(super) fn bound_kv_rows(&self, kv: &Summands, norm: &Weight, cache: &Cache) -> Vec<Bound> {
        vec![
            self.bound_batch(),
            self.bound_pages(),
            self.bound_summands("kv", kv),
            self.bound("kv_norm", norm.buffer()),
            self.bound("cache", cache.buffer),
        ]
    }
}
