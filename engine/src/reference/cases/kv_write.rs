//! The cases of `kv_write`.

use crate::error::Result;
use crate::kernels::kv_blocks::BlockRow;
use crate::kernels::{Cache, CacheType, Norm};
use crate::plan::{BufferRef, Target, Tensor};
use crate::reference::kv_rows::{WRITTEN, block_top, rotated, rotations};
use crate::reference::vectors::rms_normed;
use crate::reference::{Case, CaseBuilder, Expected, OutputType};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let shapes = [(8, 2, 0, 1, 1), (20, 8, 3, 1, 1), (132, 34, 17, 1, 1), (512, 64, 2, 1, 1), (132, 34, 17, 3, 5)];
    let mut cases = Vec::new();
    for ty in [CacheType::F16, CacheType::F32] {
        for (rank, rotary, position, tokens, room) in shapes {
            cases.push(KvRowCase { ty, rank, rotary, position, tokens, room }.case(target)?);
        }
    }
    // Latents of one block, of an odd number of blocks, of a real model; rotary keys with and without padding.
    for (rank, rotary, position, tokens, room) in
        [(512, 64, 2, 1, 1), (32, 2, 0, 1, 1), (96, 10, 3, 1, 1), (160, 34, 17, 3, 5)]
    {
        cases.push(KvRowCase { ty: CacheType::Q8_0, rank, rotary, position, tokens, room }.case(target)?);
    }
    Ok(cases)
}

/// The KV row of a token whose kv is {rank + rotary}, with the norm's weights {rank}.
fn kv_row(kv: &[f32], weights: &[f32], rotations: &[[f32; 2]]) -> Vec<f64> {
    let (latent, key) = kv.split_at(weights.len());
    let mut kv_row = rms_normed(latent, weights, 1e-5);
    kv_row.extend(key.chunks(2).zip(rotations).flat_map(|(p, &t)| rotated(p[0], p[1], t)));
    kv_row.resize(kv_row.len().next_multiple_of(4), 0.0); // writes are in whole chunks
    kv_row
}

fn expect_kv_row(case: &mut CaseBuilder, cache: &Cache, place: usize, kv_row: Vec<f64>) {
    if cache.ty == CacheType::Q8_0 {
        return expect_blocks(case, cache, place, kv_row);
    }
    let kind = if cache.ty == CacheType::F16 { OutputType::F16 } else { OutputType::F32 };
    case.expect_at(cache.buffer, kind, Cache::row_values(cache.rank, cache.rotary) * place, kv_row, WRITTEN);
}

/// Expects a KV row in blocks.
fn expect_blocks(case: &mut CaseBuilder, cache: &Cache, place: usize, mut kv_row: Vec<f64>) {
    let Cache { buffer, rank, rotary, .. } = *cache;
    let (row, key) = (BlockRow { rank, rotary }, kv_row.split_off(rank));
    case.expect_at(buffer, OutputType::F16, (place * row.bytes() + row.keys()) / 2, key, WRITTEN);
    let BufferRef::Local(local) = buffer else { return };
    let magnitudes = (0..rank).map(|at| block_top(&kv_row, at)).collect();
    let places = (place * rank..(place + 1) * rank).collect();
    let kind = OutputType::Block(row);
    case.expect_values(Expected { local, kind, places, values: kv_row, magnitudes, bound: WRITTEN });
}

/// A case's KV rows of the cache, for any kernel that writes them.
pub(super) struct KvRowCase {
    pub ty: CacheType,
    pub rank: usize,
    pub rotary: usize,
    pub position: usize,
    /// The number of tokens of the case, whose KV rows begin at the position.
    pub tokens: usize,
    /// The most tokens of a batch.
    pub room: usize,
}

/// The inputs of KV rows.
pub(super) struct KvRowInputs {
    pub kv: Tensor,
    pub norm: Norm,
    pub cache: Cache,
    want: Vec<Vec<f64>>,
}

impl KvRowCase {
    /// A case that only writes the KV rows: none for absent tokens.
    fn case(&self, target: &Target) -> Result<Case> {
        let Self { ty, rank, rotary, position, tokens, room } = *self;
        let mut case = self.start(target);
        let inputs = self.inputs(&mut case)?;
        case.plan.kv_write("write", inputs.kv, &inputs.norm, &inputs.cache)?;
        self.expect(&mut case, &inputs);
        let tokens = format!("{tokens} of {room} tokens");
        Ok(case.finish(format!("{ty:?}, rank {rank}, rotary {rotary}, position {position}, {tokens}")))
    }

    /// A case at the first KV row's position.
    pub fn start(&self, target: &Target) -> CaseBuilder {
        CaseBuilder::rotated(target, self.rotary / 2, self.position as u32, (self.room, self.tokens)).0
    }

    /// The capacity of the cache in tokens.
    fn cached(&self) -> usize {
        self.position + self.room + 1
    }

    /// Noise for KV rows, and the expected KV rows.
    pub fn inputs(&self, case: &mut CaseBuilder) -> Result<KvRowInputs> {
        let Self { ty, rank, rotary, tokens, room, .. } = *self;
        let (kv, kvs) = case.input("kv", [rank + rotary, room]);
        let (weight, ws) = case.vector("kv.norm", rank)?;
        let kv_rows = kvs.chunks(rank + rotary).take(tokens).zip(self.position as u32..);
        let want = kv_rows.map(|(kv, position)| kv_row(kv, &ws, &rotations(position, rotary / 2))).collect();
        let cache = case.cache(ty, rank, rotary, self.cached());
        Ok(KvRowInputs { kv, norm: Norm { weight, epsilon: 1e-5 }, cache, want })
    }

    /// Expects the KV rows, and the rest of the cache unchanged.
    pub fn expect(&self, case: &mut CaseBuilder, inputs: &KvRowInputs) {
        for (token, kv_row) in inputs.want.iter().enumerate() {
            let place = CaseBuilder::kv_index(self.position + token, self.cached());
            expect_kv_row(case, &inputs.cache, place, kv_row.clone());
        }
    }
}
