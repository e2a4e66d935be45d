//! Tokens' KV rows of the latent cache.

use super::case::ValueType;
use super::matvec::Norm;
use super::reference::KvRows;
use super::rope_query::{rotated, rotations};
use super::{Case, CaseBuilder, Kernel, expect_multiple, expect_shape, rms_norm};
use crate::error::Result;
use crate::plan::{Bound, BufferRef, Builder, Cost, Target, Tensor, VariantBuilder, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/kv_write.wgsl");
const WORKGROUP: usize = 256;

pub(super) const KERNEL: Kernel =
    Kernel { name: "kv_write", op: OP, params: &[], matrices: &[], several: false, cases };

/// What the values of the cache are. Serde writes `f16` and `f32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
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

    /// The library file, and the part of a label.
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
    /// What its values are.
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

    /// What attention of `rows` queries costs for each token in the cache, each row's key and value with all of its KV row,
    /// which comes from memory so often.
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

    /// The files that write KV rows of tokens, told of before, whose kv lie `pitch` values apart; without the EPSILON of
    /// their norm.
    pub(super) fn kv_row_files(&self, variant: VariantBuilder, pitch: usize) -> VariantBuilder {
        variant
            .constant("RANK", "c", self.rank)
            .constant("PAIRS", "p", self.rotary / 2)
            .constant("KV_ROW", "", Self::row_values(self.rank, self.rotary) / 4)
            .constant("KV_PITCH", "", pitch / 4)
            .tagged(self.ty.file())
            .file(source!("lib/rope.wgsl"))
            .file(source!("lib/kv_row.wgsl"))
    }
}

fn row_bytes(ty: CacheType, rank: usize, rotary: usize) -> u64 {
    (Cache::row_values(rank, rotary) * ty.bytes()) as u64
}

impl Builder {
    /// A cache of `tokens` tokens for the current layer.
    pub fn latent_cache(&mut self, ty: CacheType, rank: usize, rotary: usize, tokens: usize) -> Cache {
        let bytes = row_bytes(ty, rank, rotary).saturating_mul(tokens as u64);
        Cache { buffer: self.cache("cache", bytes), ty, rank, rotary }
    }

    /// Writes the tokens' KV rows from the state's position on: the normalised first `rank` values of kv
    /// {rank + rotary, tokens}, then the rotary rest, rotated.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn kv_write(&mut self, label: &str, kv: &Tensor, norm: &Norm, cache: &Cache) -> Result<()> {
        let tokens = self.tokens();
        cache.expect_kv_rows(KERNEL.name, kv, &norm.weight, tokens)?;
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP).usual_team(self.target()).real(
            "EPSILON",
            "e",
            norm.epsilon,
        );
        let variant = cache.kv_row_files(self.state_files(variant), kv.stride);
        let bindings = self.bound_kv_rows(kv, &norm.weight, cache);
        let activations = kv.bytes() + cache.row_bytes() * tokens as u64;
        let cost = Cost { weights: norm.weight.matrix_bytes(), activations, ..Cost::default() };
        self.computes(KERNEL.name, KvRows { kv: *kv, norm: norm.clone(), cache: *cache });
        self.step(label, variant, bindings, &(), [tokens, 1, 1], cost)
    }

    /// What the files that write KV rows bind.
    pub(super) fn bound_kv_rows(&self, kv: &Tensor, norm: &Weight, cache: &Cache) -> Vec<Bound> {
        vec![
            self.bound_state(),
            self.bound("kv", kv.buffer),
            self.bound("kv_norm", norm.buffer()),
            self.bound("cache", cache.buffer),
        ]
    }
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let shapes = [(8, 2, 0, 1, 1), (20, 8, 3, 1, 1), (132, 34, 17, 1, 1), (512, 64, 2, 1, 1), (132, 34, 17, 3, 5)];
    let mut cases = Vec::new();
    for ty in [CacheType::F16, CacheType::F32] {
        for (rank, rotary, position, tokens, room) in shapes {
            cases.push(KvRowCase { ty, rank, rotary, position, tokens, room }.case(target)?);
        }
    }
    Ok(cases)
}

/// The KV row of a token whose kv is {rank + rotary}, with the norm's weights {rank}.
fn kv_row(kv: &[f32], weights: &[f32], rotations: &[[f32; 2]]) -> Vec<f64> {
    let (latent, key) = kv.split_at(weights.len());
    let mut kv_row = rms_norm::expected(latent, weights, 1e-5);
    kv_row.extend(key.chunks(2).zip(rotations).flat_map(|(p, &t)| rotated(p[0], p[1], t)));
    kv_row.resize(kv_row.len().next_multiple_of(4), 0.0); // whole chunks are written
    kv_row
}

fn expect_kv_row(case: &mut CaseBuilder, cache: &Cache, position: usize, kv_row: Vec<f64>) {
    let (kind, bound) = if cache.ty == CacheType::F16 { (ValueType::F16, 6e-4) } else { (ValueType::F32, 2e-6) };
    case.expect_at(cache.buffer, kind, Cache::row_values(cache.rank, cache.rotary) * position, kv_row, bound);
}

/// A KV row of the cache in a case of whichever kernel writes it.
pub(super) struct KvRowCase {
    pub ty: CacheType,
    pub rank: usize,
    pub rotary: usize,
    pub position: usize,
    /// Tokens of the case: KV rows from the position on.
    pub tokens: usize,
    /// Tokens there is room for.
    pub room: usize,
}

/// What KV rows are made of.
pub(super) struct KvRowInputs {
    pub kv: Tensor,
    pub norm: Norm,
    pub cache: Cache,
    want: Vec<Vec<f64>>,
}

impl KvRowCase {
    /// The KV rows, written by themselves: of tokens that are not there none is.
    fn case(&self, target: Target) -> Result<Case> {
        let Self { ty, rank, rotary, position, tokens, room } = *self;
        let mut case = self.start(target);
        let inputs = self.inputs(&mut case)?;
        case.plan.kv_write("write", &inputs.kv, &inputs.norm, &inputs.cache)?;
        self.expect(&mut case, &inputs);
        let tokens = format!("{tokens} of {room} tokens");
        Ok(case.finish(format!("{ty:?}, rank {rank}, rotary {rotary}, position {position}, {tokens}")))
    }

    /// A case at the first KV row's position.
    pub fn start(&self, target: Target) -> CaseBuilder {
        let mut case = CaseBuilder::for_tokens(target, self.rotary / 2, self.room);
        let rotations: Vec<_> = (0..self.tokens).flat_map(|token| self.rotations(token)).collect();
        match self.room {
            1 => case.state(3, self.position as u32, &rotations),
            _ => case.rotated_chunk(self.position as u32, self.tokens, &rotations),
        }
        case
    }

    /// The angles of a token.
    fn rotations(&self, token: usize) -> Vec<[f32; 2]> {
        rotations((self.position + token) as u32, self.rotary / 2)
    }

    /// Noise for KV rows, and what they should be.
    pub fn inputs(&self, case: &mut CaseBuilder) -> Result<KvRowInputs> {
        let Self { ty, rank, rotary, position, tokens, room } = *self;
        let (kv, kvs) = case.input("kv", [rank + rotary, room]);
        let (weight, ws) = case.vector("kv.norm", rank)?;
        let kv_rows = kvs.chunks(rank + rotary).take(tokens).enumerate();
        let want = kv_rows.map(|(token, kv)| kv_row(kv, &ws, &self.rotations(token))).collect();
        let cache = case.plan.latent_cache(ty, rank, rotary, position + room + 1);
        Ok(KvRowInputs { kv, norm: Norm { weight, epsilon: 1e-5 }, cache, want })
    }

    /// Expects the KV rows, and nothing else of the cache touched.
    pub fn expect(&self, case: &mut CaseBuilder, inputs: &KvRowInputs) {
        for (token, kv_row) in inputs.want.iter().enumerate() {
            expect_kv_row(case, &inputs.cache, self.position + token, kv_row.clone());
        }
    }
}
