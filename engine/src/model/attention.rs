//! Multi-head latent attention in its absorbed form: queries are projected to the latent space, so that the cache holds
//! one latent and one rotary key for each token, which all heads share.

use super::Config;
use super::weights::{AttentionWeights, QueryWeights};
use crate::error::{Error, Result};
use crate::gpu::Capabilities;
use crate::kernels::{Cache, CacheType, Input, LatentWeights, Norm, Residual};
use crate::plan::{Builder, PAGE, Tensor};

/// The size of a cache, and the type of its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
pub struct CacheShape {
    /// The number of tokens, at least one. 0, which means the model's trained context in
    /// [`LoadOptions::context`](super::LoadOptions::context), is an error here.
    pub context: usize,
    /// The type of the values.
    pub ty: CacheType,
}

impl CacheShape {
    /// Fails if the context is 0 or exceeds positions, which are u32 on the GPU, or if the type cannot hold the model's
    /// latents.
    pub(crate) fn check(&self, config: &Config) -> Result<()> {
        let rank = config.latent_rank;
        if !self.ty.holds(rank) {
            return Err(Error::Unsupported {
                what: format!("a KV cache of type {} for this model", self.ty.name()),
                found: format!("its latents have {rank} values, which is not a multiple of 32"),
                remedy: "use f16 or f32".to_owned(),
            });
        }
        if (1..=u32::MAX as usize).contains(&self.context) {
            return Ok(());
        }
        let (expected, found) = (format!("1 to {} tokens", u32::MAX), self.context.to_string());
        Err(Error::Argument { argument: "context", expected, found })
    }

    /// The size in bytes of the KV rows of one layer, in whole pages.
    pub fn layer_bytes(&self, config: &Config) -> u64 {
        let kv_row = self.ty.row_bytes(config.latent_rank, config.rotary);
        (kv_row as u64).saturating_mul((self.context.div_ceil(PAGE) as u64).saturating_mul(PAGE as u64))
    }

    /// Fails if a device cannot allocate or bind `bytes`, the size of one layer's cache.
    pub(crate) fn check_bytes(&self, bytes: u64, device: &Capabilities) -> Result<()> {
        let allowed = device.max_binding.min(device.max_buffer);
        if bytes <= allowed {
            return Ok(());
        }
        let page = (bytes / self.context.div_ceil(PAGE).max(1) as u64).max(1);
        let most = usize::try_from(allowed / page).unwrap_or(usize::MAX).saturating_mul(PAGE);
        if most == 0 {
            return Ok(()); // if not even a page fits, no context helps, and other checks name the buffer
        }
        Err(Error::ContextTooLarge { context: self.context, bytes, allowed, most })
    }
}

/// x += attention(h), where h is the normed residual stream x. `next` is the norm that follows.
pub(super) fn attention(
    b: &mut Builder,
    w: &AttentionWeights,
    config: &Config,
    (x, h, next): (&Tensor, &Input, &Norm),
    memory: CacheShape,
) -> Result<Residual> {
    let Config { latent_rank: rank, rotary, .. } = *config;
    let cache = b.latent_cache(memory.ty, rank, rotary, memory.context);
    let q = queries(b, w, config, h, &cache)?;
    let y = b.attention(LatentWeights { k_b: &w.k_b, v_b: &w.v_b }, &q, &cache, config.score_scale())?;
    b.linear_add("attn_output", &w.output, &y, x, next)
}

/// Computes the queries {key width, heads of every row}, and writes the KV rows to the cache.
fn queries(b: &mut Builder, w: &AttentionWeights, config: &Config, h: &Input, cache: &Cache) -> Result<Input> {
    let Config { key_width, heads, .. } = *config;
    let by_heads = |q: &Tensor, rounded| {
        let tensor = Tensor { shape: [key_width, heads * q.shape[1]], stride: key_width, ..*q };
        Input { tensor, norm: None, rounded }
    };
    match &w.query {
        QueryWeights::Direct(direct) => {
            let (q, kv) = b.query_and_latent("attn_q", direct, &w.kv_a, h, None)?;
            b.kv_write("kv_write", kv, &w.kv_norm, cache)?;
            Ok(by_heads(&q.x, None))
        }
        QueryWeights::Compressed { down, norm, up } => {
            let (compressed, kv) = b.query_and_latent("attn_q_a", down, &w.kv_a, h, Some(norm))?;
            let compressed = b.normed("attn_q_a_norm", &compressed, norm)?;
            let q = b.tensor_with_stride("attn_q", [key_width * heads, b.rows()], key_width * heads);
            let rounded = b.query_up(up, &compressed, &q, (&kv, &w.kv_norm, cache))?;
            Ok(by_heads(&q, rounded))
        }
    }
}
