//! The graph of the model, for the rows of a batch: the layers, and the head. It is written once, over operations that
//! choose the kernels by the number of rows and by the target (`kernels/ops.rs`).
//!
//! For a single row on a GPU other than Apple's, a layer takes nine dispatches, or eight if its feed-forward is dense:
//!
//! - attention: `mul_mv_pair` computes the compressed query, and from the same input the latent with its rotary key;
//!   `query_up_kv_write` the heads' queries and the row's KV row; `absorb_query` projects each head's query to the
//!   latent space (`attn_k_b`) and rotates it; `mla_attention` attends over splits of the cache, where a KV row is the
//!   key, and its first part the value, of all heads; `mla_output` merges the splits and projects them back
//!   (`attn_v_b`); `mul_mv` adds the result to the residual stream;
//! - experts: `mul_mv` computes the router's logits; each workgroup of `moe_gate_up` selects the experts and computes
//!   rows of one of them or of the shared ones; `moe_down` adds their weighted sum to the residual stream. On Apple's
//!   GPUs the step `route` selects the experts once instead. A dense layer has `gate_up` and `mul_mv`.
//!
//! In batches of 9 to 32 rows, `mul_mv_places` and `moe_gate_up_grouped` replace `mul_mv` and `moe_gate_up` where
//! products are of bytes (`kernels/places.rs`), in the head too.
//!
//! The head is `mul_mv`, followed by the steps of `sampling_plan`. A norm is a factor in the product that follows it,
//! except that `rms_norm_rounded` computes the one before the head where products are of bytes.

use super::Config;
use super::attention::{CacheShape, attention};
use super::moe::{dense, experts};
use super::weights::{FeedForwardWeights, LayerWeights, ModelWeights};
use crate::error::Result;
use crate::kernels::{Norm, Residual};
use crate::plan::{Builder, Tensor};

/// The name of the residual stream in plans.
pub(super) const STREAM: &str = "embed";

/// Appends the embedding and the layers. Returns the residual stream x {width, rows} after them.
pub(super) fn layers(b: &mut Builder, w: &ModelWeights, config: &Config, cache: CacheShape) -> Result<Tensor> {
    let x = b.get_rows(STREAM, &w.embedding)?;
    let mut stream = Residual::from(x);
    for (index, weights) in w.layers.iter().enumerate() {
        b.layer(index);
        stream = layer(b, weights, config, &stream, w.norm_after(index), cache)?;
    }
    Ok(x)
}

/// A layer: x += attention(norm(x)), then x += feed-forward(norm(x)), for the residual stream x {width, rows}. Its last
/// step can prepare its output for the norm that follows.
pub(super) fn layer(
    b: &mut Builder,
    w: &LayerWeights,
    config: &Config,
    stream: &Residual,
    norm_after: &Norm,
    cache: CacheShape,
) -> Result<Residual> {
    let x = stream.x;
    let h = b.normed("attn_norm", stream, &w.attention_norm)?;
    let stream = attention(b, &w.attention, config, (&x, &h, &w.feed_forward_norm), cache)?;
    let h = b.normed("ffn_norm", &stream, &w.feed_forward_norm)?;
    match &w.feed_forward {
        FeedForwardWeights::Dense(weights) => dense(b, weights, (&x, &h, norm_after)),
        FeedForwardWeights::Experts(weights) => experts(b, weights, (&x, &h, norm_after)),
    }
}

/// Appends the head: the logits {vocab, rows} of x {width, rows}, which the layers of this plan or of another have
/// left.
pub(super) fn logits(b: &mut Builder, w: &ModelWeights, x: &Tensor) -> Result<Tensor> {
    let h = match b.rms_norm_rounded("output_norm", x, &w.output_norm, &w.output)? {
        Some(rounded) => rounded,
        None => b.normed("output_norm", &Residual::from(*x), &w.output_norm)?,
    };
    b.linear("output", &w.output, &h)
}
