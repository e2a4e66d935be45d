//! The weights of a model, as its graph uses them: found among the tensors of the file by name, and checked against the
//! shapes that the hyper-parameters ask for. That happens once per load, and all plans of the model share the result.

use super::batch_plan::serves_few;
use super::weight_table::{Tensors, WeightTable};
use super::{Config, Experts, LoadOptions};
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::kernels::{Norm, Routing};
use crate::plan::Weight;
use crate::quant::F32;
use crate::speculate::DraftKind;
use std::sync::Arc;

/// The weights of a model. Shapes are innermost first.
#[derive(Clone)]
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
    /// The multi-token-prediction block, if there is one and it is wanted.
    pub block: Option<BlockWeights>,
}

/// The weights of a multi-token-prediction block.
#[derive(Clone)]
pub struct BlockWeights {
    /// The embeddings of the tokens {width, vocab}: its own ones, or those of the model.
    pub embedding: Weight,
    /// The norm of the embedding of the token that follows {width}.
    pub embedding_norm: Norm,
    /// The norm of the hidden state {width}.
    pub hidden_norm: Norm,
    /// The projection of both {2 · width, width}.
    pub projection: Weight,
    /// The layer.
    pub layer: LayerWeights,
    /// The norm that its head begins with {width}: its own one, or that of the model.
    pub head_norm: Norm,
    /// The output matrix {width, vocab}: its own one, or that of the model.
    pub output: Weight,
}

/// The weights of a layer.
#[derive(Clone)]
pub struct LayerWeights {
    /// The norm before attention {width}.
    pub attention_norm: Norm,
    /// Attention.
    pub attention: AttentionWeights,
    /// The norm before the feed-forward {width}.
    pub feed_forward_norm: Norm,
    /// The feed-forward.
    pub feed_forward: FeedForwardWeights,
}

/// The weights of multi-head latent attention.
#[derive(Clone)]
pub struct AttentionWeights {
    /// The projection to the queries of all heads.
    pub query: QueryWeights,
    /// The projection to the latent, followed by the rotary key {width, rank + rotary}.
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
#[derive(Clone)]
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
#[derive(Clone)]
pub enum FeedForwardWeights {
    /// One for all tokens.
    Dense(GatedWeights),
    /// A mixture of experts.
    Experts(Box<MixtureWeights>),
}

/// The matrices of a gated feed-forward, down · (silu(gate · h) ⊙ up · h), or a stack of each, one for every expert.
#[derive(Clone)]
pub struct GatedWeights {
    /// Gate {width, hidden}.
    pub gate: Weight,
    /// Up {width, hidden}.
    pub up: Weight,
    /// Down {hidden, width}.
    pub down: Weight,
}

/// The weights of a mixture of experts.
#[derive(Clone)]
pub struct MixtureWeights {
    /// The router {width, experts}.
    pub router: Weight,
    /// What is added to the router's scores for the selection only {experts}.
    pub bias: Weight,
    /// How experts are selected and weighed by the scores.
    pub routing: Routing,
    /// The experts.
    pub experts: GatedWeights,
    /// The shared experts, which process every token, if there are any.
    pub shared: Option<GatedWeights>,
}

impl ModelWeights {
    /// Finds the weights in a file, of which it reads the header only. The table has them in the order in which the
    /// steps of a token first use them; snapshots of sessions depend on that order, because it enters the model's
    /// fingerprint.
    ///
    /// # Errors
    /// [`Error::Tensor`](crate::Error::Tensor) for a tensor that is missing or has a shape other than the
    /// hyper-parameters ask for, [`Error::Unsupported`](crate::Error::Unsupported) for one whose type is unknown here,
    /// and for a bias or a scale of a weight.
    pub fn resolve(file: &Gguf, config: &Config) -> Result<Arc<Self>> {
        let mut table = WeightTable::default();
        let tensors = &mut Tensors::of_model(file, &mut table);
        let matrix = [config.width, config.vocab];
        let embedding = tensors.matrix("token_embd.weight", matrix)?;
        let layer = |index| LayerWeights::resolve(tensors, config, &format!("blk.{index}"), index);
        let layers = (0..config.layers).map(layer).collect::<Result<Vec<_>>>()?;
        let output_norm = tensors.norm("output_norm.weight", config.width, config.epsilon)?;
        let output = if tensors.has(OUTPUT) { tensors.matrix(OUTPUT, matrix)? } else { embedding.clone() };
        Ok(Arc::new(Self { table, embedding, layers, output_norm, output, block: None }))
    }

    /// Like [`ModelWeights::resolve`], with the multi-token-prediction block that guesses tokens, if the file has one
    /// or there is one in a file of its own. A block that cannot be used causes a notice, or an error if drafts of its
    /// kind or its file were requested.
    ///
    /// # Errors
    /// The errors of [`ModelWeights::resolve`]; [`Error::Unsupported`] if the block is requested and there is not
    /// exactly one, and [`Error::Metadata`] if its file belongs to another model.
    pub fn with_block(file: &Gguf, config: &Config, options: &LoadOptions) -> Result<(Arc<Self>, Option<String>)> {
        let weights = Self::resolve(file, config)?;
        let draft = options.draft_model.as_ref();
        let asked = match options.speculation {
            DraftKind::Mtp => true,
            DraftKind::Auto => draft.is_some(),
            _ => return Ok((weights, None)),
        };
        if !asked && config.draft_blocks == 0 {
            return Ok((weights, None));
        }
        let mut table = weights.table.clone();
        let block = match draft {
            None => BlockWeights::in_model(file, &mut table, config, &weights),
            Some(draft) => {
                BlockWeights::in_file(draft, file, &mut table, config, &weights).map_err(|error| draft.name(error))
            }
        };
        match block {
            Ok(block) => Ok((Arc::new(Self { table, block: Some(block), ..Arc::unwrap_or_clone(weights) }), None)),
            Err(error) if asked => Err(error),
            Err(error) => {
                let notice = format!("the multi-token-prediction block is not used: {error}");
                Ok((weights, Some(notice)))
            }
        }
    }

    /// A notice about tensors that are not used, although they may change what the model should compute. It leaves out
    /// the tensors of a multi-token-prediction block, which may be unused, and those that are known to change nothing.
    pub fn notice_of_unknown(&self, config: &Config) -> Option<String> {
        let blocks = config.layers..config.layers + config.draft_blocks;
        let is_of_block = |name: &str| {
            let index = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse().ok());
            index.is_some_and(|index: usize| blocks.contains(&index))
        };
        let changes_angles = |name: &str| self.table.files().first().is_some_and(|file| changes_angles(file, name));
        let is_known = |name: &str| name.ends_with(ABSORBED) || name.ends_with(ANGLES) && !changes_angles(name);
        let unknown: Vec<_> = self.table.unused().filter(|name| !is_of_block(name) && !is_known(name)).collect();
        let (first, count) = (unknown.first()?, unknown.len());
        let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        Some(format!("unknown tensors are ignored (`{first}`{more}): answers are wrong if the model needs them"))
    }

    /// The norm that follows a layer: that of the next layer, or of the head.
    pub fn norm_after(&self, layer: usize) -> &Norm {
        self.layers.get(layer + 1).map_or(&self.output_norm, |next| &next.attention_norm)
    }

    /// How many weights the model has without the block. They come first in the table.
    pub fn without_block(&self) -> usize {
        1 + self.output.id.index().max(self.output_norm.weight.id.index())
    }
}

const OUTPUT: &str = "output.weight";

/// The end of the names of tensors that are not needed beside `attn_k_b` and `attn_v_b`, which have their values.
const ABSORBED: &str = ".attn_kv_b.weight";

/// The end of the names of factors for angles. The hyper-parameters say how positions become angles.
const ANGLES: &str = "rope_freqs.weight";

/// The most bytes of such factors that are read to find out whether they are all 1.
const MAX_FACTOR_BYTES: usize = 1 << 16;

/// Whether factors for angles are other than 1, or cannot be read.
fn changes_angles(file: &Gguf, name: &str) -> bool {
    let tensor = file.tensor(name).filter(|tensor| tensor.ty.name == F32.name && tensor.bytes <= MAX_FACTOR_BYTES);
    let factors = tensor.and_then(|tensor| file.read_all(tensor).ok());
    factors.is_none_or(|factors| factors.chunks(4).any(|factor| factor != 1f32.to_le_bytes()))
}

impl BlockWeights {
    /// The block after the layers of a model's file.
    fn in_model(file: &Gguf, table: &mut WeightTable, config: &Config, model: &ModelWeights) -> Result<Self> {
        one_block(config.draft_blocks)?;
        Self::resolve(&mut Tensors::of_model(file, table), config, &format!("blk.{}", config.layers), model)
    }

    /// The only block of a separate file, in which it may have any index.
    fn in_file(
        draft: &Gguf,
        file: &Gguf,
        table: &mut WeightTable,
        config: &Config,
        model: &ModelWeights,
    ) -> Result<Self> {
        let blocks: Vec<&str> =
            draft.tensors().filter_map(|tensor| tensor.name.strip_suffix(".nextn.eh_proj.weight")).collect();
        one_block(blocks.len())?;
        same_model(draft, file)?;
        Self::resolve(&mut Tensors::of_further(draft, table), config, blocks[0], model)
    }

    fn resolve(tensors: &mut Tensors<'_>, config: &Config, block: &str, model: &ModelWeights) -> Result<Self> {
        if !serves_few(config) {
            let found = format!(
                "{} heads with keys of {} and values of {}",
                config.heads, config.key_width, config.value_width
            );
            let remedy = "the total widths of keys and of values must be multiples of 32";
            return Err(unsupported("a multi-token-prediction block with these heads", found, remedy));
        }
        let name = |stem: &str| format!("{block}.nextn.{stem}.weight");
        let matrix = [config.width, config.vocab];
        let optional = |tensors: &mut Tensors<'_>, stem: &str, usual: &Weight| {
            let name = name(stem);
            if tensors.has(&name) { tensors.matrix(&name, matrix) } else { Ok(usual.clone()) }
        };
        let embedding = optional(tensors, "embed_tokens", &model.embedding)?;
        let norm = |tensors: &mut Tensors<'_>, stem: &str| tensors.norm(&name(stem), config.width, config.epsilon);
        let (embedding_norm, hidden_norm) = (norm(tensors, "enorm")?, norm(tensors, "hnorm")?);
        let projection = tensors.matrix(&name("eh_proj"), [2 * config.width, config.width])?;
        let layer = LayerWeights::resolve(tensors, config, block, config.layers)?;
        let own_norm = tensors.has(&name("shared_head_norm")).then(|| norm(tensors, "shared_head_norm"));
        let head_norm = own_norm.unwrap_or_else(|| Ok(model.output_norm.clone()))?;
        let output = optional(tensors, "shared_head_head", &model.output)?;
        Ok(Self { embedding, embedding_norm, hidden_norm, projection, layer, head_norm, output })
    }
}

fn unsupported(what: &str, found: String, remedy: &str) -> Error {
    Error::Unsupported { what: what.into(), found, remedy: remedy.into() }
}

fn one_block(found: usize) -> Result<()> {
    let what = "this number of multi-token-prediction blocks";
    if found == 1 { Ok(()) } else { Err(unsupported(what, found.to_string(), "wglm uses exactly one")) }
}

/// Fails if the metadata in the block's file contradicts the model's file. Shapes are checked elsewhere.
fn same_model(draft: &Gguf, file: &Gguf) -> Result<()> {
    /// What may differ: how many layers there are, and how long a text the model was trained for.
    const OTHER: [&str; 3] = ["block_count", "nextn_predict_layers", "context_length"];
    let architecture = file.string("general.architecture")?;
    let prefix = format!("{architecture}.");
    let describes = |key: &str| {
        key == "general.architecture"
            || key == "tokenizer.ggml.tokens"
            || key.strip_prefix(&prefix).is_some_and(|stem| !OTHER.contains(&stem))
    };
    for (key, value) in file.metadata().filter(|(key, _)| describes(key)) {
        let Some(found) = draft.get(key) else { continue };
        // Programs write counts as integers of different widths.
        let same = found == value || found.integer().is_some() && found.integer() == value.integer();
        if !same {
            let (expected, found) = (format!("{value}, as in the model's file"), found.to_string());
            return Err(Error::Metadata { key: key.into(), expected, found });
        }
    }
    Ok(())
}

impl LayerWeights {
    /// The weights of layer `index`, whose tensors' names begin with `block`.
    fn resolve(tensors: &mut Tensors<'_>, config: &Config, block: &str, index: usize) -> Result<Self> {
        let norm = |tensors: &mut Tensors<'_>, name: &str| tensors.norm(name, config.width, config.epsilon);
        Ok(Self {
            attention_norm: norm(tensors, &format!("{block}.attn_norm.weight"))?,
            feed_forward_norm: norm(tensors, &format!("{block}.ffn_norm.weight"))?,
            attention: AttentionWeights::resolve(tensors, config, block)?,
            feed_forward: FeedForwardWeights::resolve(tensors, config, block, index)?,
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
    fn resolve(tensors: &mut Tensors<'_>, config: &Config, block: &str, index: usize) -> Result<Self> {
        Ok(match &config.experts {
            Some(experts) if index >= config.leading_dense => {
                Self::Experts(Box::new(MixtureWeights::resolve(tensors, config, experts, block)?))
            }
            _ => Self::Dense(GatedWeights::resolve(tensors, block, "", [config.width, config.dense_width])?),
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
