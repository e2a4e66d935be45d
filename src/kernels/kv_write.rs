//! Writes the KV rows of a batch: what the latent cache holds of each token.

use super::computes::KvRows;
use super::matvec::Norm;
use super::{Kernel, Summands, expect_multiple, expect_shape, params};
use crate::error::Result;
use crate::plan::{Bound, BufferRef, Builder, Cost, PAGE, Tensor, VariantBuilder, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/kv_write.wgsl");
const WORKGROUP: usize = 256;

params! { pitch: u32, parts: u32, apart: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "kv_write", op: OP, params: Params::FIELDS, matrices: &[] };

/// The type of the values of the cache. Serde writes `f16` and `f32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CacheType {
    /// Half the memory; moves logits by up to 1e-3 (relative L2).
    F16,
    /// Exact.
    F32,
}

impl CacheType {
    /// Bytes of a value.
    pub fn bytes(self) -> usize {
        if self == Self::F16 { 2 } else { 4 }
    }

    /// The library file, and its part of a shader's label.
    pub(super) fn file(self) -> (Source, &'static str) {
        match self {
            Self::F16 => (source!("lib/kv_f16.wgsl"), "f16"),
            Self::F32 => (source!("lib/kv_f32.wgsl"), "f32"),
        }
    }
}

/// The cache of one layer: the latent and the rotary key of every token.
#[derive(Debug, Clone, Copy)]
pub struct Cache {
    /// Where it is.
    pub buffer: BufferRef,
    /// The type of its values.
    pub ty: CacheType,
    /// Values of the latent.
    pub rank: usize,
    /// Values of the rotary key.
    pub rotary: usize,
}

impl Cache {
    /// Values from one token's KV row to the next's. The tail is zero.
    pub fn row_values(rank: usize, rotary: usize) -> usize {
        (rank + rotary).next_multiple_of(8)
    }

    /// Bytes from one token's KV row to the next's.
    pub fn row_bytes(&self) -> u64 {
        row_bytes(self.ty, self.rank, self.rotary)
    }

    /// What attention of `rows` queries costs for each KV row in the cache, which is read from memory `readings` times.
    pub(super) fn cost(&self, rows: usize, readings: usize) -> Cost {
        let products = Self::row_values(self.rank, self.rotary) + self.rank;
        let cache = self.row_bytes().saturating_mul(readings as u64);
        Cost { cache, cache_flops: 2 * products as u64 * rows as u64, ..Cost::default() }
    }

    /// An error unless kv {rank + rotary, tokens} and the norm's weights {rank} make KV rows.
    pub(super) fn expect_kv_rows(&self, op: &'static str, kv: &Tensor, norm: &Weight, tokens: usize) -> Result<()> {
        expect_shape(op, "kv", kv.shape[0], self.rank + self.rotary)?;
        expect_shape(op, "kv's vectors", kv.shape[1], tokens)?;
        expect_multiple(op, "kv's stride", kv.stride, 4)?;
        expect_shape(op, &norm.name, norm.shape[0], self.rank)?;
        expect_multiple(op, "latent", self.rank, 4)?;
        expect_multiple(op, "rotary key", self.rotary, 2)
    }

    /// Adds the files that write KV rows, behind those of the batch. EPSILON, of the norm, and `kv_chunk` are left to the
    /// caller.
    pub(super) fn kv_row_files(&self, variant: VariantBuilder) -> VariantBuilder {
        pool_files(variant)
            .constant("RANK", "c", self.rank)
            .constant("KV_ROW", "", Self::row_values(self.rank, self.rotary) / 4)
            .tagged(self.ty.file())
            .file(source!("lib/rope.wgsl"))
            .file(source!("lib/kv_row.wgsl"))
    }
}

/// Adds the file that finds KV rows in the pool of pages.
pub(super) fn pool_files(variant: VariantBuilder) -> VariantBuilder {
    variant.constant("PAGE", "", PAGE).file(source!("lib/kv_pages.wgsl"))
}

fn row_bytes(ty: CacheType, rank: usize, rotary: usize) -> u64 {
    (Cache::row_values(rank, rotary) * ty.bytes()) as u64
}

impl Builder {
    /// The pages of the current layer for `tokens` tokens.
    pub fn latent_cache(&mut self, ty: CacheType, rank: usize, rotary: usize, tokens: usize) -> Cache {
        self.room_for_pages(tokens.div_ceil(PAGE));
        let bytes = row_bytes(ty, rank, rotary).saturating_mul(tokens.next_multiple_of(PAGE) as u64);
        Cache { buffer: self.cache("cache", bytes), ty, rank, rotary }
    }

    /// Writes the KV rows of a batch to the cache: the normalised first `rank` values of kv {rank + rotary, rows}, then the
    /// rotary rest, rotated.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn kv_write(&mut self, label: &str, kv: impl Into<Summands>, norm: &Norm, cache: &Cache) -> Result<()> {
        let tokens = self.rows();
        let summands = kv.into();
        let kv = &summands.tensor;
        cache.expect_kv_rows(KERNEL.name, kv, &norm.weight, tokens)?;
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP).usual_team(self.target()).real(
            "EPSILON",
            "e",
            norm.epsilon,
        );
        let variant = cache.kv_row_files(self.batch_files(variant));
        let bindings = self.bound_kv_rows(kv, &norm.weight, cache);
        let activations = summands.bytes() + cache.row_bytes() * tokens as u64;
        let cost = Cost { weights: norm.weight.matrix_bytes(), activations, ..Cost::default() };
        self.computes(KERNEL.name, KvRows { kv: summands, norm: norm.clone(), cache: *cache });
        let [pitch, apart] = [kv.pitch, summands.apart].map(|values| (values / 4) as u32);
        let params = Params { pitch, parts: summands.parts as u32, apart };
        self.step(label, variant, bindings, &params, [tokens, 1, 1], cost)
    }

    /// The bindings of the files that write KV rows.
    pub(super) fn bound_kv_rows(&self, kv: &Tensor, norm: &Weight, cache: &Cache) -> Vec<Bound> {
        vec![
            self.bound_batch(),
            self.bound_pages(),
            self.bound("kv", kv.buffer),
            self.bound("kv_norm", norm.buffer()),
            self.bound("cache", cache.buffer),
        ]
    }
}
