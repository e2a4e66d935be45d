//! The graph of the model, for the rows of a batch: the layers, and the head. It is written once, over operations that
//! choose the kernels by the number of rows and by the target (`kernels/ops.rs`).

use super::Config;
use super::attention::{CacheShape, attention};
use super::moe::{dense, experts};
use super::weights::Weights;
use crate::error::Result;
use crate::kernels::{Norm, Residual};
use crate::plan::{Builder, Tensor};

/// Appends the embedding and the layers. Returns the residual stream x {width, rows} behind them, and the norm that the head
/// begins with.
pub(super) fn layers(
    b: &mut Builder,
    w: &mut Weights<'_>,
    config: &Config,
    cache: CacheShape,
) -> Result<(Tensor, Norm)> {
    let embedding = w.matrix(b, "token_embd.weight", config.width, config.vocab)?;
    let x = b.get_rows("embed", &embedding)?;
    let mut stream = Residual::from(x);
    let mut norm = norm_before(b, w, config, 0)?;
    for index in 0..config.layers {
        b.layer(index);
        let block = format!("blk.{index}");
        let h = b.normed("attn_norm", &stream, &norm)?;
        norm = norm_of(b, w, config, &format!("{block}.ffn_norm.weight"))?;
        stream = attention(b, w, config, &block, (&x, &h, &norm), cache)?;
        let h = b.normed("ffn_norm", &stream, &norm)?;
        norm = norm_before(b, w, config, index + 1)?;
        stream = match &config.experts {
            Some(shape) if index >= config.leading_dense => experts(b, w, config, shape, &block, (&x, &h, &norm))?,
            _ => dense(b, w, config, &block, (&x, &h, &norm))?,
        }
    }
    Ok((x, norm))
}

/// Appends the head: the logits {vocab, rows} of x {width, rows}, which the layers of this plan or of another have left.
pub(super) fn logits(b: &mut Builder, w: &mut Weights<'_>, config: &Config, x: &Tensor, norm: &Norm) -> Result<Tensor> {
    let h = b.normed("output_norm", &Residual::from(*x), norm)?;
    let output = w.output(b, config)?;
    b.linear("output", &output, &h)
}

/// The norm that a layer begins with. Behind the last layer it is that of the head.
fn norm_before(b: &mut Builder, w: &mut Weights<'_>, config: &Config, layer: usize) -> Result<Norm> {
    let name =
        if layer < config.layers { format!("blk.{layer}.attn_norm.weight") } else { "output_norm.weight".into() };
    norm_of(b, w, config, &name)
}

fn norm_of(b: &mut Builder, w: &mut Weights<'_>, config: &Config, name: &str) -> Result<Norm> {
    Ok(Norm { weight: w.vector(b, name, config.width)?, epsilon: config.epsilon })
}
