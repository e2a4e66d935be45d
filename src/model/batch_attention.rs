//! Multi-head latent attention of a chunk of tokens, in its absorbed form.

use super::Config;
use super::attention::CacheShape;
use super::weights::Weights;
use crate::error::Result;
use crate::kernels::{Cache, ChunkAttention, Norm};
use crate::plan::{Batch, Builder};

/// x += attention(norm(x)), of every token of a chunk, over a cache that is deep or not.
pub(super) fn attention(
    b: &mut Builder,
    w: &mut Weights<'_>,
    config: &Config,
    block: &str,
    x: &Batch,
    memory: CacheShape,
    deep: bool,
) -> Result<()> {
    let Config { heads, latent_rank: rank, rotary, value_width, .. } = *config;
    let cache = b.latent_cache(memory.ty, rank, rotary, memory.context);
    let norm = w.vector(b, &format!("{block}.attn_norm.weight"), config.width)?;
    let h = Batch::from(b.rms_norm("attn_norm", &x.vectors()?, &norm, config.epsilon)?);
    cache_lines(b, w, config, block, &h, &cache)?;
    let q = queries(b, w, config, block, &h)?;

    let (k_b, v_b) = w.latent_pair(b, block, config)?;
    let absorbed =
        b.batch_with_stride("attn_q_absorbed", [rank + rotary, heads], x.tokens, Cache::row_values(rank, rotary));
    b.mul_mm_into("attn_k_b", &k_b, &Batch { values: config.nope(), ..q }, &Batch { values: rank, ..absorbed })?;
    b.rope_query("rope_query", &q.vectors()?, rotary, &absorbed.vectors()?)?;
    let attention = ChunkAttention { q: &absorbed, cache: &cache, scale: config.score_scale(), deep };
    let latent = b.mla_attention_batch("attention", &attention)?;

    let joined = value_width * heads;
    let out = b.batch_with_stride("attn_v_b", [joined, 1], x.tokens, joined.next_multiple_of(4));
    let by_heads = Batch { values: value_width, stacks: heads, stride: value_width, ..out };
    b.mul_mm_into("attn_v_b", &v_b, &latent, &by_heads)?;
    let output = w.matrix(b, &format!("{block}.attn_output.weight"), joined, config.width)?;
    b.mul_mm_add("attn_output", &output, &out, x)
}

/// The tokens' lines in the cache.
fn cache_lines(
    b: &mut Builder,
    w: &mut Weights<'_>,
    config: &Config,
    block: &str,
    h: &Batch,
    cache: &Cache,
) -> Result<()> {
    let kv_a = w.matrix(b, &format!("{block}.attn_kv_a_mqa.weight"), config.width, cache.rank + cache.rotary)?;
    let weight = w.vector(b, &format!("{block}.attn_kv_a_norm.weight"), cache.rank)?;
    let kv = b.mul_mm("attn_kv_a", &kv_a, h)?;
    b.kv_write("kv_write", &kv.vectors()?, &Norm { weight, epsilon: config.epsilon }, cache)
}

/// The heads' queries {key width, heads} of every token.
fn queries(b: &mut Builder, w: &mut Weights<'_>, config: &Config, block: &str, h: &Batch) -> Result<Batch> {
    let name = |stem: &str| format!("{block}.{stem}.weight");
    let (key_width, heads) = (config.key_width, config.heads);
    let rows = key_width * heads;
    let q = b.batch_with_stride("attn_q", [rows, 1], h.tokens, rows);
    match config.query_rank {
        None => {
            let direct = w.matrix(b, &name("attn_q"), config.width, rows)?;
            b.mul_mm_into("attn_q", &direct, h, &q)?;
        }
        Some(rank) => {
            let down = w.matrix(b, &name("attn_q_a"), config.width, rank)?;
            let compressed = b.mul_mm("attn_q_a", &down, h)?;
            let norm = w.vector(b, &name("attn_q_a_norm"), rank)?;
            let compressed = b.rms_norm("attn_q_a_norm", &compressed.vectors()?, &norm, config.epsilon)?;
            let up = w.matrix(b, &name("attn_q_b"), rank, rows)?;
            b.mul_mm_into("attn_q", &up, &compressed.into(), &q)?;
        }
    }
    Ok(Batch { values: key_width, stacks: heads, stride: key_width, ..q })
}
