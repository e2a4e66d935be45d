//! Tokens' lines of the latent cache.

use super::case::Kind;
use super::matvec::Norm;
use super::reference::Lines;
use super::rope_query::{turned, turns};
use super::{Case, CaseBuilder, Kernel, expect_multiple, expect_shape, rms_norm};
use crate::error::Result;
use crate::plan::{Bound, BufferRef, Builder, Cost, Target, Tensor, VariantBuilder, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/cache_write.wgsl");
const WORKGROUP: usize = 256;

pub(super) const KERNEL: Kernel =
    Kernel { name: "cache_write", op: OP, params: &[], matrices: &[], several: false, cases };

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

    /// What attention of `rows` queries costs for each token in the cache, each row's key and value with all of its line,
    /// which comes from memory so often.
    pub(super) fn cost(&self, rows: usize, readings: usize) -> Cost {
        let products = Self::line(self.rank, self.rotary) + self.rank;
        let cache = self.line_bytes().saturating_mul(readings as u64);
        Cost { cache, cache_flops: 2 * products as u64 * rows as u64, ..Cost::default() }
    }

    /// An error unless kv {rank + rotary, tokens} and the norm's weights {rank} make lines.
    pub(super) fn expect_lines(&self, op: &'static str, kv: &Tensor, norm: &Weight, tokens: usize) -> Result<()> {
        expect_shape(op, "kv", kv.shape[0], self.rank + self.rotary)?;
        expect_shape(op, "kv's vectors", kv.shape[1], tokens)?;
        expect_multiple(op, "kv's stride", kv.stride, 4)?;
        expect_shape(op, &norm.name, norm.shape[0], self.rank)?;
        expect_multiple(op, "latent", self.rank, 4)?;
        expect_multiple(op, "rotary key", self.rotary, 2)
    }

    /// The files that write lines of tokens, told of before, whose kv lie `pitch` values apart; without the EPSILON of
    /// their norm.
    pub(super) fn line_files(&self, variant: VariantBuilder, pitch: usize) -> VariantBuilder {
        variant
            .constant("RANK", "c", self.rank)
            .constant("PAIRS", "p", self.rotary / 2)
            .constant("LINE", "", Self::line(self.rank, self.rotary) / 4)
            .constant("KV_PITCH", "", pitch / 4)
            .tagged(self.ty.file())
            .file(source!("lib/rope.wgsl"))
            .file(source!("lib/cache_line.wgsl"))
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

    /// Writes the tokens' lines from the state's position on: the normalised first `rank` values of kv
    /// {rank + rotary, tokens}, then the rotary rest, turned.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn cache_write(&mut self, label: &str, kv: &Tensor, norm: &Norm, cache: &Cache) -> Result<()> {
        let tokens = self.tokens();
        cache.expect_lines(KERNEL.name, kv, &norm.weight, tokens)?;
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP).usual_team(self.target()).real(
            "EPSILON",
            "e",
            norm.epsilon,
        );
        let variant = cache.line_files(self.state_files(variant), kv.stride);
        let bindings = self.bound_lines(kv, &norm.weight, cache);
        let activations = kv.bytes() + cache.line_bytes() * tokens as u64;
        let cost = Cost { weights: norm.weight.matrix_bytes(), activations, ..Cost::default() };
        self.computes(KERNEL.name, Lines { kv: *kv, norm: norm.clone(), cache: *cache });
        self.step(label, variant, bindings, &(), [tokens, 1, 1], cost)
    }

    /// What the files that write lines bind.
    pub(super) fn bound_lines(&self, kv: &Tensor, norm: &Weight, cache: &Cache) -> Vec<Bound> {
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
            cases.push(LineCase { ty, rank, rotary, position, tokens, room }.case(target)?);
        }
    }
    Ok(cases)
}

/// The line of a token whose kv is {rank + rotary}, with the norm's weights {rank}.
fn line(kv: &[f32], weights: &[f32], turns: &[[f32; 2]]) -> Vec<f64> {
    let (latent, key) = kv.split_at(weights.len());
    let mut line = rms_norm::twin(latent, weights, 1e-5);
    line.extend(key.chunks(2).zip(turns).flat_map(|(p, &t)| turned(p[0], p[1], t)));
    line.resize(line.len().next_multiple_of(4), 0.0); // whole chunks are written
    line
}

fn expect_line(case: &mut CaseBuilder, cache: &Cache, position: usize, line: Vec<f64>) {
    let (kind, bound) = if cache.ty == CacheType::F16 { (Kind::F16, 6e-4) } else { (Kind::F32, 2e-6) };
    case.expect_at(cache.buffer, kind, Cache::line(cache.rank, cache.rotary) * position, line, bound);
}

/// A line of the cache in a case of whichever kernel writes it.
pub(super) struct LineCase {
    pub ty: CacheType,
    pub rank: usize,
    pub rotary: usize,
    pub position: usize,
    /// Tokens of the case: lines from the position on.
    pub tokens: usize,
    /// Tokens there is room for.
    pub room: usize,
}

/// What lines are made of.
pub(super) struct LineInputs {
    pub kv: Tensor,
    pub norm: Norm,
    pub cache: Cache,
    want: Vec<Vec<f64>>,
}

impl LineCase {
    /// The lines, written by themselves: of tokens that are not there none is.
    fn case(&self, target: Target) -> Result<Case> {
        let Self { ty, rank, rotary, position, tokens, room } = *self;
        let mut case = self.start(target);
        let inputs = self.inputs(&mut case)?;
        case.plan.cache_write("write", &inputs.kv, &inputs.norm, &inputs.cache)?;
        self.expect(&mut case, &inputs);
        let tokens = format!("{tokens} of {room} tokens");
        Ok(case.finish(format!("{ty:?}, rank {rank}, rotary {rotary}, position {position}, {tokens}")))
    }

    /// A case at the first line's position.
    pub fn start(&self, target: Target) -> CaseBuilder {
        let mut case = CaseBuilder::for_tokens(target, self.rotary / 2, self.room);
        let turns: Vec<_> = (0..self.tokens).flat_map(|token| self.turns(token)).collect();
        match self.room {
            1 => case.state(3, self.position as u32, &turns),
            _ => case.turned_chunk(self.position as u32, self.tokens, &turns),
        }
        case
    }

    /// The angles of a token.
    fn turns(&self, token: usize) -> Vec<[f32; 2]> {
        turns((self.position + token) as u32, self.rotary / 2)
    }

    /// Noise for lines, and what they should be.
    pub fn inputs(&self, case: &mut CaseBuilder) -> Result<LineInputs> {
        let Self { ty, rank, rotary, position, tokens, room } = *self;
        let (kv, kvs) = case.input("kv", [rank + rotary, room]);
        let (weight, ws) = case.vector("kv.norm", rank)?;
        let lines = kvs.chunks(rank + rotary).take(tokens).enumerate();
        let want = lines.map(|(token, kv)| line(kv, &ws, &self.turns(token))).collect();
        let cache = case.plan.latent_cache(ty, rank, rotary, position + room + 1);
        Ok(LineInputs { kv, norm: Norm { weight, epsilon: 1e-5 }, cache, want })
    }

    /// Expects the lines, and nothing else of the cache touched.
    pub fn expect(&self, case: &mut CaseBuilder, inputs: &LineInputs) {
        for (token, line) in inputs.want.iter().enumerate() {
            expect_line(case, &inputs.cache, self.position + token, line.clone());
        }
    }
}
