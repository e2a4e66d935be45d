//! The weights of a model, as its graph uses them: found among the tensors of the file by name, and checked against the
//! shapes that the hyper-parameters ask for. That happens once a load, and all plans of the model share what was found.

use super::batch_plan::serves_few;
use super::weight_table::{Tensors, WeightTable};
use super::{Config, Experts};
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::kernels::{Norm, Routing};
use crate::plan::Weight;
use crate::speculate::DraftKind;
use std::sync::Arc;

/// The weights of a model. Shapes are innermost first.
pub struct ModelWeights {
    /// All of them.
    pub table: WeightTable,
    /// The embeddings of the tokens {width, vocab}.
    pub embedding: Weight,
    /// The layers.
    pub layers: Vec<LayerWeights>,
    /// The norm that the head begins with {width}.
    pub output_norm: Norm,
    /// The output matrix {width, vocab}, which is a tensor of its own, or that of the embeddings.
    pub output: Weight,
    /// The multi-token-prediction block, if the file has one and it is wanted.
    pub block: Option<BlockWeights>,
}

/// The weights of a multi-token-prediction block.
pub struct BlockWeights {
    /// The embeddings of the tokens {width, vocab}: its own ones, or those of the model.
    pub embedding: Weight,
    /// The norm of the embedding of the token that follows {width}.
    pub embedding_norm: Norm,
    /// The norm of the hidden state {width}.
    pub hidden_norm: Norm,
    /// The projection of both {2 · width, width}.
    pub projection: Weight,
    /// The layer. The norm behind it is that of the block's head: its own one, or that of the model.
    pub layer: LayerWeights,
    /// The output matrix {width, vocab}: its own one, or that of the model.
    pub output: Weight,
}

/// The weights of a layer.
pub struct LayerWeights {
    /// The norm before attention {width}.
    pub attention_norm: Norm,
    /// Attention.
    pub attention: AttentionWeights,
    /// The norm before the feed-forward {width}.
    pub feed_forward_norm: Norm,
    /// The feed-forward.
    pub feed_forward: FeedForwardWeights,
    /// The norm that follows the layer {width}: that of the next layer, or of the head. The layer's last step can prepare
    /// its output for it.
    pub next_norm: Norm,
}

/// The weights of multi-head latent attention.
pub struct AttentionWeights {
    /// The projection to the queries of all heads.
    pub query: QueryWeights,
    /// The projection to the latent and, behind it, the rotary key {width, rank + rotary}.
    pub kv_a: Weight,
    /// The norm of the latent {rank}.
    pub kv_norm: Norm,
    /// The projections between the latent and each head's key {nope, rank, heads}.
    pub k_b: Weight,
    /// The projections between the latent and each head's value {rank, value width, heads}.
    pub v_b: Weight,
    /// The projection of the values of all heads {value width · heads, width}.
    pub output: Weight,
}

/// The projection to the queries of all heads.
pub enum QueryWeights {
    /// One matrix {width, key width · heads}.
    Direct(Weight),
    /// Two matrices of a lower rank, with a norm between them.
    Compressed {
        /// The first matrix {width, rank}.
        down: Weight,
        /// The norm {rank}.
        norm: Norm,
        /// The second matrix {rank, key width · heads}.
        up: Weight,
    },
}

/// The weights of a layer's feed-forward.
pub enum FeedForwardWeights {
    /// One for all tokens.
    Dense(GatedWeights),
    /// A mixture of experts.
    Experts(Box<MixtureWeights>),
}

/// The matrices of a gated feed-forward, down · (silu(gate · h) ⊙ up · h), or a stack of each, one for every expert.
pub struct GatedWeights {
    /// Gate {width, hidden}.
    pub gate: Weight,
    /// Up {width, hidden}.
    pub up: Weight,
    /// Down {hidden, width}.
    pub down: Weight,
}

/// The weights of a mixture of experts.
pub struct MixtureWeights {
    /// The router {width, experts}.
    pub router: Weight,
    /// What is added to the router's scores for the selection only {experts}.
    pub bias: Weight,
    /// How experts are selected and weighed by the scores.
    pub routing: Routing,
    /// The experts.
    pub experts: GatedWeights,
    /// The shared experts, which every token is given to, if there are any.
    pub shared: Option<GatedWeights>,
}

impl ModelWeights {
    /// Finds the weights in a file, of which it reads the header only. The table has them in the order in which the steps
    /// of a token first use them; snapshots of sessions depend on that order, because it enters the model's fingerprint.
    ///
    /// # Errors
    /// [`Error::Tensor`](crate::Error::Tensor) for a tensor that is missing or has a shape other than the
    /// hyper-parameters ask for, [`Error::Unsupported`](crate::Error::Unsupported) for one whose type is unknown here.
    pub fn resolve(file: &Gguf, config: &Config) -> Result<Arc<Self>> {
        let mut table = WeightTable::default();
        let tensors = &mut Tensors::new(file, &mut table);
        let matrix = [config.width, config.vocab];
        let embedding = tensors.matrix("token_embd.weight", matrix)?;
        let mut layers = Vec::new();
        for index in 0..config.layers {
            let next = index + 1;
            let next_norm =
                if next < config.layers { format!("blk.{next}.attn_norm.weight") } else { OUTPUT_NORM.to_owned() };
            layers.push(LayerWeights::resolve(tensors, config, index, &next_norm)?);
        }
        let output_norm = tensors.norm(OUTPUT_NORM, config.width, config.epsilon)?;
        let output = if tensors.has(OUTPUT) { tensors.matrix(OUTPUT, matrix)? } else { embedding.clone() };
        Ok(Arc::new(Self { table, embedding, layers, output_norm, output, block: None }))
    }

    /// As [`ModelWeights::resolve`], with the multi-token-prediction block that guesses tokens, if the file has one. A block
    /// that cannot be used is told as a notice, unless drafts by it are asked for by name.
    ///
    /// # Errors
    /// As there; [`Error::Unsupported`] if the block is asked for and the file has none, or several.
    pub fn with_block(file: &Gguf, config: &Config, kind: DraftKind) -> Result<(Arc<Self>, Option<String>)> {
        let weights = Self::resolve(file, config)?;
        let asked = kind == DraftKind::Mtp;
        if !asked && (kind != DraftKind::Auto || config.draft_blocks == 0) {
            return Ok((weights, None));
        }
        let Some(mut own) = Arc::into_inner(weights) else { return Self::resolve(file, config).map(|it| (it, None)) };
        let mut table = own.table.clone();
        match BlockWeights::resolve(file, &mut table, config, &own) {
            Ok(block) => {
                (own.table, own.block) = (table, Some(block));
                Ok((Arc::new(own), None))
            }
            Err(error) if asked => Err(error),
            Err(error) => {
                let notice = format!("tokens are not guessed by the multi-token-prediction block: {error}");
                Ok((Arc::new(own), Some(notice)))
            }
        }
    }
}

const OUTPUT_NORM: &str = "output_norm.weight";
const OUTPUT: &str = "output.weight";

impl BlockWeights {
    fn resolve(file: &Gguf, table: &mut WeightTable, config: &Config, model: &ModelWeights) -> Result<Self> {
        let index = config.layers;
        let unsupported = |what: &str, found: String, remedy: &str| {
            Err(Error::Unsupported { what: what.into(), found, remedy: remedy.into() })
        };
        if config.draft_blocks != 1 {
            let found = config.draft_blocks.to_string();
            return unsupported("the number of multi-token-prediction blocks", found, "one is supported");
        }
        if !serves_few(config) {
            let found = format!("{} heads of {} and {}", config.heads, config.key_width, config.value_width);
            let remedy = "the widths of all heads together have to be multiples of 32";
            return unsupported("a multi-token-prediction block beside such heads", found, remedy);
        }
        let tensors = &mut Tensors::new(file, table);
        let name = |stem: &str| format!("blk.{index}.nextn.{stem}.weight");
        let matrix = [config.width, config.vocab];
        let optional = |tensors: &mut Tensors<'_>, stem: &str, usual: &Weight| {
            let name = name(stem);
            if tensors.has(&name) { tensors.matrix(&name, matrix) } else { Ok(usual.clone()) }
        };
        let embedding = optional(tensors, "embed_tokens", &model.embedding)?;
        let norm = |tensors: &mut Tensors<'_>, stem: &str| tensors.norm(&name(stem), config.width, config.epsilon);
        let (embedding_norm, hidden_norm) = (norm(tensors, "enorm")?, norm(tensors, "hnorm")?);
        let projection = tensors.matrix(&name("eh_proj"), [2 * config.width, config.width])?;
        let own_norm = name("shared_head_norm");
        let next_norm = if tensors.has(&own_norm) { own_norm } else { OUTPUT_NORM.to_owned() };
        let layer = LayerWeights::resolve(tensors, config, index, &next_norm)?;
        let output = optional(tensors, "shared_head_head", &model.output)?;
        Ok(Self { embedding, embedding_norm, hidden_norm, projection, layer, output })
    }
}

impl LayerWeights {
    /// The weights of block `index` of a file, which is followed by a norm of this name.
    pub(super) fn resolve(tensors: &mut Tensors<'_>, config: &Config, index: usize, next_norm: &str) -> Result<Self> {
        let block = format!("blk.{index}");
        let norm = |tensors: &mut Tensors<'_>, name: &str| tensors.norm(name, config.width, config.epsilon);
        Ok(Self {
            attention_norm: norm(tensors, &format!("{block}.attn_norm.weight"))?,
            feed_forward_norm: norm(tensors, &format!("{block}.ffn_norm.weight"))?,
            attention: AttentionWeights::resolve(tensors, config, &block)?,
            next_norm: norm(tensors, next_norm)?,
            feed_forward: FeedForwardWeights::resolve(tensors, config, index)?,
        })
    }
}

impl AttentionWeights {
    fn resolve(tensors: &mut Tensors<'_>, config: &Config, block: &str) -> Result<Self> {
        let name = |stem: &str| format!("{block}.{stem}.weight");
        let Config { width, heads, latent_rank: rank, rotary, key_width, value_width, epsilon, .. } = *config;
        let kv_a = tensors.matrix(&name("attn_kv_a_mqa"), [width, rank + rotary])?;
        let kv_norm = tensors.norm(&name("attn_kv_a_norm"), rank, epsilon)?;
        let query = match config.query_rank {
            None => QueryWeights::Direct(tensors.matrix(&name("attn_q"), [width, key_width * heads])?),
            Some(rank) => QueryWeights::Compressed {
                down: tensors.matrix(&name("attn_q_a"), [width, rank])?,
                norm: tensors.norm(&name("attn_q_a_norm"), rank, epsilon)?,
                up: tensors.matrix(&name("attn_q_b"), [rank, key_width * heads])?,
            },
        };
        let (k_b, v_b) = tensors.latent_pair(block, config.nope(), [rank, value_width, heads])?;
        let output = tensors.matrix(&name("attn_output"), [value_width * heads, width])?;
        Ok(Self { query, kv_a, kv_norm, k_b, v_b, output })
    }
}

impl FeedForwardWeights {
    fn resolve(tensors: &mut Tensors<'_>, config: &Config, index: usize) -> Result<Self> {
        let block = format!("blk.{index}");
        Ok(match &config.experts {
            Some(experts) if index >= config.leading_dense => {
                Self::Experts(Box::new(MixtureWeights::resolve(tensors, config, experts, &block)?))
            }
            _ => Self::Dense(GatedWeights::resolve(tensors, &block, "", [config.width, config.dense_width])?),
        })
    }
}

impl GatedWeights {
    /// The matrices whose names have this suffix.
    fn resolve(tensors: &mut Tensors<'_>, block: &str, suffix: &str, [width, hidden]: [usize; 2]) -> Result<Self> {
        let name = |stem: &str| format!("{block}.ffn_{stem}{suffix}.weight");
        Ok(Self {
            gate: tensors.matrix(&name("gate"), [width, hidden])?,
            up: tensors.matrix(&name("up"), [width, hidden])?,
            down: tensors.matrix(&name("down"), [hidden, width])?,
        })
    }
}

impl MixtureWeights {
    fn resolve(tensors: &mut Tensors<'_>, config: &Config, experts: &Experts, block: &str) -> Result<Self> {
        let Experts { count, width: hidden, shared_width, routing } = *experts;
        let width = config.width;
        let router = tensors.matrix(&format!("{block}.ffn_gate_inp.weight"), [width, count])?;
        let bias = tensors.vector_or_zeros(&format!("{block}.exp_probs_b.bias"), count)?;
        let (gate, up) = tensors.gate_up_experts(block, [width, hidden, count])?;
        let down = tensors.matrices(&format!("{block}.ffn_down_exps.weight"), [hidden, width, count])?;
        let shared = match shared_width {
            0 => None,
            hidden => Some(GatedWeights::resolve(tensors, block, "_shexp", [width, hidden])?),
        };
        Ok(Self { router, bias, routing, experts: GatedWeights { gate, up, down }, shared })
    }
}
