//! The cases of `kv_write`.

use crate::error::Result;
use crate::kernels::{Cache, CacheType, Norm};
use crate::plan::{Target, Tensor};
use crate::reference::{Case, CaseBuilder};

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

/// A case's KV rows of the cache, for any kernel that writes them.
pub(super) struct KvRowCase {
    pub ty: CacheType,
    pub rank: usize,
    pub rotary: usize,
    pub position: usize,
    /// The number of tokens of the case, whose KV rows begin at the position.
    pub tokens: usize,
    /// The maximum number of tokens in a batch.
    pub room: usize,
}

/// The inputs of KV rows.
pub(super) struct KvRowInputs {
    pub kv: Tensor,
    pub norm: Norm,
    pub cache: Cache,
}

impl KvRowCase {
    /// A case that only writes the KV rows: none for absent tokens.
    fn case(&self, target: &Target) -> Result<Case> {
        let Self { ty, rank, rotary, position, tokens, room } = *self;
        let mut case = self.start(target);
        let inputs = self.inputs(&mut case)?;
        case.plan.kv_write("write", inputs.kv, &inputs.norm, &inputs.cache)?;
        let tokens = format!("{tokens} of {room} tokens");
        Ok(case.finish(format!("{ty:?}, rank {rank}, rotary {rotary}, position {position}, {tokens}")))
    }

    /// A case at the first KV row's position.
    pub fn start(&self, target: &Target) -> CaseBuilder {
        CaseBuilder::rotated(target, self.rotary / 2, self.position as u32, (self.room, self.tokens))
    }

    /// Noise for KV rows.
    pub fn inputs(&self, case: &mut CaseBuilder) -> Result<KvRowInputs> {
        let Self { ty, rank, rotary, position, room, .. } = *self;
        let kv = case.input("kv", [rank + rotary, room]);
        let norm = case.norm("kv.norm", rank)?;
        Ok(KvRowInputs { kv, norm, cache: case.cache(ty, rank, rotary, position + room + 1) })
    }
}
