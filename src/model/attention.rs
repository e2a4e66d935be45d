//! Multi-head latent attention in its absorbed form: queries are brought to the latent, so that the cache
//! holds one latent and one rotary key a token, shared by all heads.

use super::Config;
use super::weights::Weights;
use crate::error::{Error, Result};
use crate::kernels::{Cache, CacheType, Input, Norm, Residual, splits};
use crate::plan::{Builder, Tensor, Weight};

/// How much a cache holds, and as what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct CacheShape {
    /// Tokens, at least one: 0, which [`LoadOptions::context`](super::LoadOptions::context) takes for as many as the
    /// model was made for, is refused here.
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

/// x += attention(h), for h the stream x under its norm; `next` is the norm that follows.
pub(super) fn attention(
    b: &mut Builder,
    w: &mut Weights<'_>,
    config: &Config,
    block: &str,
    (x, h, next): (&Tensor, &Input, &Norm),
    memory: CacheShape,
) -> Result<Residual> {
    let Config { width, heads, latent_rank: rank, rotary, .. } = *config;
    let cache = b.latent_cache(memory.ty, rank, rotary, memory.context);
    let q = query_and_cache(b, w, config, block, h, &cache)?;

    let (k_b, v_b) = w.latent_pair(b, block, config)?;
    let absorbed = absorbed(b, &k_b, &q, rotary)?;
    let splits = splits(b.tokens());
    let parts = match b.suits_matrices(&absorbed, &cache) {
        true => b.mla_attention_matrix("attention", &absorbed, &cache, config.score_scale(), splits)?,
        false => b.mla_attention("attention", &absorbed, &cache, config.score_scale(), splits)?,
    };
    let tokens = x.shape[1];
    let out = b.tensor_with_stride("attn_v_b", [config.value_width, heads * tokens], config.value_width);
    let rounded = if b.target().fusions.merge {
        b.mla_output("attn_v_b", &v_b, &parts, &out)?
    } else {
        let latent = b.tensor("merge", [rank, heads * tokens]);
        b.mla_merge("merge", &parts, &latent)?;
        b.mul_mv_into("attn_v_b", &v_b, &Input::from(&latent), &out)?;
        None
    };

    let joined = config.value_width * heads;
    let output = w.matrix(b, &format!("{block}.attn_output.weight"), joined, width)?;
    let stride = if tokens == 1 { joined.next_multiple_of(4) } else { joined };
    let out = Tensor { shape: [joined, tokens], stride, ..out };
    b.mul_mv_add("attn_output", &output, &Input { tensor: out, norm: None, rounded }, x, next)
}

/// The heads' queries {key width, heads of every token}, and the tokens' lines in the cache.
fn query_and_cache(
    b: &mut Builder,
    w: &mut Weights<'_>,
    config: &Config,
    block: &str,
    h: &Input,
    cache: &Cache,
) -> Result<Input> {
    let name = |stem: &str| format!("{block}.{stem}.weight");
    let (width, rows, epsilon) = (config.width, config.key_width * config.heads, config.epsilon);
    let (down, down_rows, label) = match config.query_rank {
        None => ("attn_q", rows, "attn_q"),
        Some(rank) => ("attn_q_a", rank, "attn_q_a"),
    };
    let down = w.matrix(b, &name(down), width, down_rows)?;
    let kv_a = w.matrix(b, &name("attn_kv_a_mqa"), width, cache.rank + cache.rotary)?;
    let kv_norm = Norm { weight: w.vector(b, &name("attn_kv_a_norm"), cache.rank)?, epsilon };
    let norm = match config.query_rank {
        Some(rank) => Some(Norm { weight: w.vector(b, &name("attn_q_a_norm"), rank)?, epsilon }),
        None => None,
    };
    let (compressed, kv) = if b.target().fusions.latent {
        b.mul_mv_pair("attn_qkv_a", [label, "attn_kv_a"], &down, &kv_a, h, norm.as_ref())?
    } else {
        (b.mul_mv(label, &down, h)?.into(), b.mul_mv("attn_kv_a", &kv_a, h)?)
    };
    let heads = |q: &Tensor, rounded| Input {
        tensor: Tensor { shape: [config.key_width, config.heads * q.shape[1]], stride: config.key_width, ..*q },
        norm: None,
        rounded,
    };
    let Some(norm) = norm else {
        b.kv_write("kv_write", &kv, &kv_norm, cache)?;
        return Ok(heads(&compressed.x, None));
    };
    let compressed = b.normed("attn_q_a_norm", &compressed, &norm)?;
    let up = w.matrix(b, &name("attn_q_b"), norm.weight.shape[0], rows)?;
    let q = b.tensor_with_stride("attn_q", [rows, b.tokens()], rows);
    let mut rounded = None;
    if b.target().fusions.cache {
        rounded = b.query_up_kv_write("attn_q", &up, &compressed, &q, &kv, &kv_norm, cache)?;
    } else {
        b.mul_mv_into("attn_q", &up, &compressed, &q)?;
        b.kv_write("kv_write", &kv, &kv_norm, cache)?;
    }
    Ok(heads(&q, rounded))
}

/// The queries {rank + rotary, heads of every token} as attention over the latent wants them.
fn absorbed(b: &mut Builder, k_b: &Weight, q: &Input, rotary: usize) -> Result<Tensor> {
    let [nope, rank, heads] = k_b.shape;
    let y =
        b.tensor_with_stride("attn_q_absorbed", [rank + rotary, heads * b.tokens()], Cache::row_values(rank, rotary));
    if b.target().fusions.absorb {
        b.absorb_query("attn_k_b", k_b, q, &y)?;
    } else {
        let q_nope = Input::from(&Tensor { shape: [nope, heads], ..q.tensor });
        b.mul_mv_into("attn_k_b", k_b, &q_nope, &Tensor { shape: [rank, heads], ..y })?;
        b.rope_query("rope_query", &q.tensor, rotary, &y)?;
    }
    Ok(y)
}
