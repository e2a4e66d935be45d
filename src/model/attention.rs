//! Multi-head latent attention in its absorbed form: queries are brought to the latent, so that the cache
//! holds one latent and one rotary key a token, shared by all heads.

use super::Config;
use super::weights::Weights;
use crate::error::{Error, Result};
use crate::kernels::{Cache, CacheType, splits_for};
use crate::plan::{Builder, Tensor};

/// How much a cache holds, and as what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheShape {
    /// Tokens.
    pub context: usize,
    /// What its values are.
    pub ty: CacheType,
}

impl CacheShape {
    /// Positions are u32 on the GPU.
    pub(super) fn check(&self) -> Result<()> {
        if (1..=u32::MAX as usize).contains(&self.context) {
            return Ok(());
        }
        let (expected, found) = (format!("1 to {} tokens", u32::MAX), self.context.to_string());
        Err(Error::Argument { argument: "context", expected, found })
    }
}

/// x += attention(norm(x)).
pub(super) fn attention(
    b: &mut Builder,
    w: &mut Weights<'_>,
    config: &Config,
    block: &str,
    x: &Tensor,
    memory: CacheShape,
) -> Result<()> {
    let Config { width, heads, latent_rank: rank, rotary, epsilon, .. } = *config;
    let name = |stem: &str| format!("{block}.{stem}.weight");
    let norm = w.vector(b, &name("attn_norm"), width)?;
    let h = b.rms_norm("attn_norm", x, &norm, epsilon)?;
    let q = query(b, w, config, block, &h)?;

    let kv_a = w.matrix(b, &name("attn_kv_a_mqa"), width, rank + rotary)?;
    let kv = b.mul_mv("attn_kv_a", &kv_a, &h)?;
    let kv_norm = w.vector(b, &name("attn_kv_a_norm"), rank)?;
    let cache = b.latent_cache(memory.ty, rank, rotary, memory.context);
    b.cache_write("cache_write", &kv, &kv_norm, epsilon, &cache)?;

    let (k_b, v_b) = w.latent_pair(b, block, config)?;
    let absorbed = b.tensor_with_stride("attn_q_absorbed", [rank + rotary, heads], Cache::line(rank, rotary));
    let q_nope = Tensor { shape: [config.nope(), heads], ..q };
    b.mul_mv_into("attn_k_b", &k_b, &q_nope, &Tensor { shape: [rank, heads], ..absorbed })?;
    b.rope_query("rope_query", &q, rotary, &absorbed)?;

    let splits = splits_for(memory.context);
    let parts = b.mla_attention("attention", &absorbed, &cache, config.score_scale(), splits)?;
    let latent = b.mla_merge("merge", &parts, splits)?;
    let out = b.tensor_with_stride("attn_v_b", [config.value_width, heads], config.value_width);
    b.mul_mv_into("attn_v_b", &v_b, &latent, &out)?;

    let joined = config.value_width * heads;
    let output = w.matrix(b, &name("attn_output"), joined, width)?;
    b.mul_mv_add("attn_output", &output, &Tensor { shape: [joined, 1], stride: joined.next_multiple_of(4), ..out }, x)
}

/// The heads' queries {key width, heads}.
fn query(b: &mut Builder, w: &mut Weights<'_>, config: &Config, block: &str, h: &Tensor) -> Result<Tensor> {
    let (width, rows) = (config.width, config.key_width * config.heads);
    let q = b.tensor_with_stride("attn_q", [rows, 1], rows);
    match config.query_rank {
        None => {
            let direct = w.matrix(b, &format!("{block}.attn_q.weight"), width, rows)?;
            b.mul_mv_into("attn_q", &direct, h, &q)?;
        }
        Some(rank) => {
            let down = w.matrix(b, &format!("{block}.attn_q_a.weight"), width, rank)?;
            let compressed = b.mul_mv("attn_q_a", &down, h)?;
            let norm = w.vector(b, &format!("{block}.attn_q_a_norm.weight"), rank)?;
            let compressed = b.rms_norm("attn_q_a_norm", &compressed, &norm, config.epsilon)?;
            let up = w.matrix(b, &format!("{block}.attn_q_b.weight"), rank, rows)?;
            b.mul_mv_into("attn_q", &up, &compressed, &q)?;
        }
    }
    Ok(Tensor { shape: [config.key_width, config.heads], stride: config.key_width, ..q })
}
