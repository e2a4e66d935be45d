//! A token's line of the latent cache.

use super::case::Kind;
use super::rope_query::{turned, turns};
use super::{Case, CaseBuilder, Kernel, expect_multiple, expect_shape, params, rms_norm};
use crate::error::Result;
use crate::plan::{BufferRef, Builder, Moved, Target, Tensor, VariantBuilder, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/cache_write.wgsl");
const WORKGROUP: usize = 256;

params! { rank: u32, pairs: u32, line: u32, epsilon: f32 }

pub(super) const KERNEL: Kernel = Kernel { name: "cache_write", op: OP, params: Params::FIELDS, cases };

/// What the values of the cache are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

    /// The library file, and the part of a label.
    pub(super) fn file(self) -> (Source, &'static str) {
        match self {
            Self::F16 => (source!("lib/cache_f16.wgsl"), "f16"),
            Self::F32 => (source!("lib/cache_f32.wgsl"), "f32"),
        }
    }
}

/// The cache of one layer: the latent and the rotary key of every token.
#[derive(Debug, Clone, Copy)]
pub struct Cache {
    /// Where it is.
    pub buffer: BufferRef,
    /// What its values are.
    pub ty: CacheType,
    /// Values of the latent.
    pub rank: usize,
    /// Values of the rotary key.
    pub rotary: usize,
}

impl Cache {
    /// Values from one token's line to the next's. The tail is zero.
    pub fn line(rank: usize, rotary: usize) -> usize {
        (rank + rotary).next_multiple_of(8)
    }

    /// Bytes from one token's line to the next's.
    pub fn line_bytes(&self) -> u64 {
        line_bytes(self.ty, self.rank, self.rotary)
    }
}

fn line_bytes(ty: CacheType, rank: usize, rotary: usize) -> u64 {
    (Cache::line(rank, rotary) * ty.bytes()) as u64
}

impl Builder {
    /// A cache of `tokens` tokens for the current layer.
    pub fn latent_cache(&mut self, ty: CacheType, rank: usize, rotary: usize, tokens: usize) -> Cache {
        let bytes = line_bytes(ty, rank, rotary).saturating_mul(tokens as u64);
        Cache { buffer: self.cache("cache", bytes), ty, rank, rotary }
    }

    /// Writes the line of the state's position: the normalised first `rank` values of kv {rank + rotary}
    /// times `weight` {rank}, then the rotary rest, turned.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn cache_write(
        &mut self,
        label: &str,
        kv: &Tensor,
        weight: &Weight,
        epsilon: f32,
        cache: &Cache,
    ) -> Result<()> {
        let Cache { rank, rotary, .. } = *cache;
        expect_shape(KERNEL.name, "kv", kv.shape[0], rank + rotary)?;
        expect_shape(KERNEL.name, &weight.name, weight.shape[0], rank)?;
        expect_multiple(KERNEL.name, "latent", rank, 4)?;
        expect_multiple(KERNEL.name, "rotary key", rotary, 2)?;
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP)
            .tagged(cache.ty.file())
            .team(self.team())
            .file(source!("lib/state.wgsl"))
            .file(source!("lib/rope.wgsl"));
        let bindings = vec![
            self.bound_state(),
            self.bound("kv", kv.buffer),
            self.bound_vector("weight", weight),
            self.bound("cache", cache.buffer),
        ];
        let line = Cache::line(rank, rotary) as u32 / 4;
        let params = Params { rank: rank as u32, pairs: rotary as u32 / 2, line, epsilon };
        let moved = Moved { weights: weight.matrix_bytes(), activations: kv.bytes() + cache.line_bytes(), cache: 0 };
        self.step(label, variant, bindings, &params, [1, 1, 1], moved)
    }
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for ty in [CacheType::F16, CacheType::F32] {
        for (rank, rotary, position) in [(8, 2, 0), (20, 8, 3), (132, 34, 17), (512, 64, 2)] {
            cases.push(case(target, ty, rank, rotary, position)?);
        }
    }
    Ok(cases)
}

fn case(target: Target, ty: CacheType, rank: usize, rotary: usize, position: usize) -> Result<Case> {
    let mut case = CaseBuilder::new(target, rotary / 2);
    let turns = turns(position as u32, rotary / 2);
    case.state(3, position as u32, &turns);
    let (kv, kvs) = case.input("kv", [rank + rotary, 1]);
    let (weight, ws) = case.vector("norm", rank)?;
    let cache = case.plan.latent_cache(ty, rank, rotary, position + 2);
    case.plan.cache_write("write", &kv, &weight, 1e-5, &cache)?;
    let mut want = rms_norm::twin(&kvs[..rank], &ws, 1e-5);
    want.extend(kvs[rank..].chunks(2).zip(&turns).flat_map(|(p, &t)| turned(p[0], p[1], t)));
    want.resize(want.len().next_multiple_of(4), 0.0); // whole chunks are written
    let (kind, bound) = if ty == CacheType::F16 { (Kind::F16, 6e-4) } else { (Kind::F32, 2e-6) };
    case.expect_at(cache.buffer, kind, Cache::line(rank, rotary) * position, want, bound);
    Ok(case.finish(format!("{ty:?}, rank {rank}, rotary {rotary}, position {position}")))
}
