//! Reads the hyper-parameters from the file's metadata, and checks them.

use super::rope::RopeScaling;
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::kernels::{ExpertGroups, Gating, Routing};
use crate::text::Family;
use std::ops::Range;

/// The only supported architecture, as GGUF calls the family of GLM-4.7-Flash.
const ARCHITECTURE: &str = "deepseek2";
/// The vocabulary and layer counts of GLM-4.7-Flash, which identify it in early files without a gating key.
const GLM_VOCAB: usize = 154_880;
const GLM_BLOCKS: [usize; 2] = [47, 48];
/// The numbers of experts of the DeepSeek models that select them within groups: V2 and V2.5, V3 and later.
const GROUPED: [usize; 2] = [160, 256];

/// The mixture of experts of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Experts {
    /// The number of experts in a layer.
    pub count: usize,
    /// The width of an expert's hidden layer.
    pub width: usize,
    /// The width of the hidden layer of all shared experts together; 0 without any.
    pub shared_width: usize,
    /// How tokens are routed to experts.
    pub routing: Routing,
}

/// The hyper-parameters of a model.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The number of layers, without multi-token-prediction blocks.
    pub layers: usize,
    /// The number of multi-token-prediction blocks after them.
    pub draft_blocks: usize,
    /// The number of layers at the beginning with a dense feed-forward.
    pub leading_dense: usize,
    /// The context in tokens that the model was trained for.
    pub context: usize,
    /// The number of tokens in the vocabulary.
    pub vocab: usize,
    /// The width of the residual stream.
    pub width: usize,
    /// The width of the dense feed-forward's hidden layer.
    pub dense_width: usize,
    /// The number of attention heads.
    pub heads: usize,
    /// The width of the compressed query; `None` if queries are not compressed.
    pub query_rank: Option<usize>,
    /// The width of the latent.
    pub latent_rank: usize,
    /// The width of a head's key, rotary part included.
    pub key_width: usize,
    /// The width of a head's value.
    pub value_width: usize,
    /// The width of the rotary part of a key.
    pub rotary: usize,
    /// How positions become angles.
    pub rope: RopeScaling,
    /// The ε under the root of every norm, x / √(mean(x²) + ε) · weight, as in ggml's `ggml_rms_norm`. The formula in
    /// the paper about these norms has no ε (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019).
    pub epsilon: f32,
    /// The experts; `None` if every layer is dense.
    pub experts: Option<Experts>,
    /// Sentences about decisions where the file gives no information, and about what is left unused.
    pub notices: Vec<String>,
}

impl Config {
    /// Reads and checks the hyper-parameters.
    ///
    /// # Errors
    /// [`Error::Metadata`] if a key is missing or out of range, [`Error::Unsupported`] if the file needs something that
    /// wglm does not support.
    pub fn read(file: &Gguf) -> Result<Self> {
        let architecture = file.string("general.architecture")?;
        if architecture != ARCHITECTURE {
            let remedy = format!("wglm runs models of the architecture `{ARCHITECTURE}`, such as GLM-4.7-Flash");
            return Err(Error::unsupported("this architecture", format!("`{architecture}`"), remedy));
        }
        let keys = Keys { file };
        keys.nothing_else()?;
        let mut config = keys.config()?;
        config.experts = keys.experts(&mut config)?;
        config.check()?;
        let template = file.opt_string("tokenizer.chat_template").ok().flatten();
        config.notices.extend(template.and_then(Family::notice));
        Ok(config)
    }

    /// The width of the part of a head's key without position.
    pub fn nope(&self) -> usize {
        self.key_width - self.rotary
    }

    /// The factor of attention scores before their softmax: 1 / √(key width of a head before absorption) (Vaswani et
    /// al., "Attention Is All You Need", 2017; for latent attention DeepSeek-AI, "DeepSeek-V2", 2024, and llama.cpp's
    /// `kq_scale`), times the factor of a stretched context ([`RopeScaling::score_factor`]).
    pub fn score_scale(&self) -> f32 {
        (self.rope.score_factor() / (self.key_width as f64).sqrt()) as f32
    }

    fn check(&self) -> Result<()> {
        let key = |name: &str| format!("{ARCHITECTURE}.{name}");
        if self.rotary >= self.key_width {
            let expected = format!("less than the key width {}", self.key_width);
            return Err(metadata(&key("rope.dimension_count"), &expected, &self.rotary.to_string()));
        }
        if self.leading_dense > 0 && self.dense_width == 0 {
            return Err(metadata(
                &key("feed_forward_length"),
                "at least 1, because there are dense layers",
                "0 or nothing",
            ));
        }
        let most = [
            ("attention.kv_lora_rank", self.latent_rank, 16_384),
            ("attention.key_length_mla", self.key_width, 16_384),
            ("expert_count", self.experts.as_ref().map_or(0, |e| e.count), 1024),
        ];
        for (name, value, most) in most {
            if value > most {
                return Err(unsupported(&key(name), &value.to_string(), &format!("the maximum is {most}")));
            }
        }
        let multiples = [
            ("rope.dimension_count", self.rotary, 2),
            ("attention.key_length_mla", self.key_width, 4),
            ("attention.kv_lora_rank", self.latent_rank, 4),
        ];
        for (name, value, unit) in multiples {
            if !value.is_multiple_of(unit) {
                return Err(metadata(&key(name), &format!("a multiple of {unit}"), &value.to_string()));
            }
        }
        Ok(())
    }
}

/// A notice about groups of a model with softmax routing.
fn scored_by_two(groups: ExpertGroups) -> String {
    format!(
        "each of the {} groups of experts is scored by its two best experts, as in DeepSeek-V3 and llama.cpp; if the \
         original model scores it by the best one, as DeepSeek-V2 does, other experts may be selected than in the \
         original",
        groups.count
    )
}

pub(super) fn metadata(key: &str, expected: &str, found: &str) -> Error {
    Error::Metadata { key: key.into(), expected: expected.into(), found: found.into() }
}

pub(super) fn unsupported(key: &str, found: &str, remedy: &str) -> Error {
    Error::unsupported(format!("this value of `{key}`"), format!("`{found}`"), remedy)
}

/// Reads keys whose names begin with that of the architecture.
pub(super) struct Keys<'a> {
    pub file: &'a Gguf,
}

impl Keys<'_> {
    pub(super) fn key(&self, name: &str) -> String {
        format!("{ARCHITECTURE}.{name}")
    }

    /// A number of at least 1.
    pub(super) fn count(&self, name: &str) -> Result<usize> {
        match self.file.u32(&self.key(name))? {
            0 => Err(metadata(&self.key(name), "at least 1", "0")),
            n => Ok(n as usize),
        }
    }

    /// A number that may be absent or 0.
    pub(super) fn optional(&self, name: &str) -> Result<usize> {
        Ok(self.file.opt_u32(&self.key(name))?.unwrap_or(0) as usize)
    }

    /// A number that may be absent or 0, or a list with a number for each block. Those of the blocks in `layers`, which
    /// are the ones that use it, have to be the same.
    fn optional_of(&self, name: &str, layers: Range<usize>) -> Result<usize> {
        self.optional(name).or_else(|error| {
            let list = self.file.u32s(&self.key(name)).unwrap_or_default();
            match list.get(layers) {
                Some([]) if !list.is_empty() => Ok(0),
                Some([first, others @ ..]) if others.iter().all(|other| other == first) => Ok(*first as usize),
                _ => Err(error),
            }
        })
    }

    /// Such a number of at least 1.
    fn count_of(&self, name: &str, layers: Range<usize>) -> Result<usize> {
        match self.optional_of(name, layers)? {
            0 => self.count(name),
            count => Ok(count),
        }
    }

    /// A float that may be absent.
    pub(super) fn number(&self, name: &str, usual: f64) -> Result<f64> {
        Ok(self.file.opt_f32(&self.key(name))?.map_or(usual, f64::from))
    }

    pub(super) fn positive(&self, name: &str, value: f64) -> Result<f64> {
        if value > 0.0 { Ok(value) } else { Err(metadata(&self.key(name), "more than 0", &value.to_string())) }
    }

    fn config(&self) -> Result<Config> {
        let blocks = self.count("block_count")?;
        let draft_blocks = self.optional("nextn_predict_layers")?;
        let layers = blocks.checked_sub(draft_blocks).filter(|n| *n > 0).ok_or_else(|| {
            let expected = format!("less than the {blocks} blocks");
            metadata(&self.key("nextn_predict_layers"), &expected, &draft_blocks.to_string())
        })?;
        let query_rank = Some(self.optional("attention.q_lora_rank")?).filter(|n| *n > 0);
        let epsilon = self.file.f32(&self.key("attention.layer_norm_rms_epsilon"))?;
        if !(0.0..1.0).contains(&epsilon) {
            let key = self.key("attention.layer_norm_rms_epsilon");
            return Err(metadata(&key, "0 to 1", &epsilon.to_string()));
        }
        // Without experts all layers are dense; a file may also say that more layers are dense than it has.
        let leading = self.optional("leading_dense_block_count")?;
        let leading_dense = if self.optional("expert_count")? == 0 { layers } else { leading.min(layers) };
        let (width, heads) = (self.count("embedding_length")?, self.count_of("attention.head_count", 0..layers)?);
        let mut notices = Vec::new();
        Ok(Config {
            layers,
            draft_blocks,
            leading_dense,
            context: self.count("context_length")?,
            vocab: self.vocab(width, &mut notices)?,
            width,
            dense_width: self.optional_of("feed_forward_length", 0..leading_dense)?,
            heads,
            query_rank,
            latent_rank: self.count("attention.kv_lora_rank")?,
            key_width: self.head_width(["attention.key_length_mla", "attention.key_length"], width, heads)?,
            value_width: self.head_width(["attention.value_length_mla", "attention.value_length"], width, heads)?,
            rotary: self.count("rope.dimension_count")?,
            rope: RopeScaling::read(self, &mut notices)?,
            epsilon,
            experts: None,
            notices,
        })
    }

    /// Files from before absorbed attention store the widths of a head under the plain key. Without both keys a head
    /// has its share of the embedding's width, as in llama.cpp, if a tensor of the first layer has that width too.
    fn head_width(&self, [name, early]: [&str; 2], width: usize, heads: usize) -> Result<usize> {
        let present = |name| self.file.get(&self.key(name)).is_some();
        if present(early) || present(name) {
            return self.count(if present(name) { name } else { early });
        }
        let (stems, axis): (&[_], _) =
            if early == "attention.key_length" { (&["attn_q", "attn_q_b"], 1) } else { (&["attn_output"], 0) };
        let share = width / heads;
        let tensor = stems.iter().find_map(|stem| self.file.tensor(&format!("blk.0.{stem}.weight")));
        let agrees =
            tensor.and_then(|tensor| tensor.dims.get(axis)).is_some_and(|dim| Some(*dim) == share.checked_mul(heads));
        if agrees && share > 0 { Ok(share) } else { self.count(name) }
    }

    /// The number of tokens of the embeddings. As in llama.cpp, the tensor decides, and not the key, unless the tensor
    /// contradicts the embedding's width or the output matrix.
    fn vocab(&self, width: usize, notices: &mut Vec<String>) -> Result<usize> {
        let named = Some(self.optional("vocab_size")?).filter(|n| *n > 0);
        let embedding = self.file.tensor("token_embd.weight");
        let rows = embedding.and_then(|tensor| tensor.dims.get(1)).copied();
        let output = self.file.tensor("output.weight").map(|tensor| &tensor.dims);
        let agrees = embedding.is_some_and(|tensor| {
            tensor.dims.first() == Some(&width) && output.is_none_or(|output| *output == tensor.dims)
        });
        match (named, rows) {
            (Some(named), Some(rows)) if named != rows && agrees => {
                let (key, found) = (self.key("vocab_size"), format!("`token_embd.weight` has {rows} rows"));
                notices.push(format!("`{key}` is {named}, but {found}: using {rows} tokens"));
                Ok(rows)
            }
            _ => named.or(rows).ok_or_else(|| metadata(&self.key("vocab_size"), "a count", "nothing")),
        }
    }

    /// Fails for keys that change what a model computes in ways that wglm does not implement.
    fn nothing_else(&self) -> Result<()> {
        // Scores that grow with the position, as Mistral Large 3 has them.
        let name = "attention.temperature_scale";
        match self.number(name, 0.0)? {
            0.0 => Ok(()),
            other => Err(unsupported(&self.key(name), &other.to_string(), "wglm supports only 0")),
        }
    }

    fn experts(&self, config: &mut Config) -> Result<Option<Experts>> {
        let count = self.optional("expert_count")?;
        if count == 0 {
            return Ok(None);
        }
        let layers = config.leading_dense..config.layers;
        let groups = self.expert_groups(count, config)?;
        let top_k = self.top_k(count, groups, layers.clone())?;
        let width = self.count_of("expert_feed_forward_length", layers)?;
        let shared = self.optional("expert_shared_count")?;
        let scale = self.file.opt_f32(&self.key("expert_weights_scale"))?.filter(|s| *s != 0.0).unwrap_or(1.0);
        let normalise = self.file.opt_bool(&self.key("expert_weights_norm"))?.unwrap_or(false);
        let routing = Routing { gating: self.gating(config)?, top_k, groups, normalise, scale };
        config.notices.extend(routing.groups.filter(|_| routing.gating == Gating::Softmax).map(scored_by_two));
        Ok(Some(Experts { count, width, shared_width: shared * width, routing }))
    }

    /// The groups of experts; `None` if all experts can be selected. Notes if the file may have lost its groups. As in
    /// llama.cpp, if there are several groups, the number of used ones is required, and each has at least two experts.
    fn expert_groups(&self, experts: usize, config: &mut Config) -> Result<Option<ExpertGroups>> {
        let key = self.key("expert_group_count");
        let count = match self.file.opt_u32(&key)? {
            None if GROUPED.contains(&experts) => {
                config.notices.push(format!(
                    "the file lacks `{key}`: assuming one group of {experts} experts; if the original model has \
                     several, as DeepSeek's with 160 and 256 experts do, other experts are selected than in the \
                     original, and a newer conversion, which has the key, is better"
                ));
                return Ok(None);
            }
            None | Some(0 | 1) => return Ok(None),
            Some(count) => count as usize,
        };
        if !experts.is_multiple_of(count) || experts / count < 2 {
            let expected = format!("equal groups of two or more of the {experts} experts");
            return Err(metadata(&key, &expected, &count.to_string()));
        }
        let name = "expert_group_used_count";
        let used = self.count(name)?;
        if used > count {
            return Err(metadata(&self.key(name), &format!("at most the {count} groups"), &used.to_string()));
        }
        Ok((used < count).then_some(ExpertGroups { count, used }))
    }

    /// The number of selected experts, of `experts`; if there are groups, they come only from the used ones.
    fn top_k(&self, experts: usize, groups: Option<ExpertGroups>, layers: Range<usize>) -> Result<usize> {
        let name = "expert_used_count";
        let (most, of) = match groups {
            Some(ExpertGroups { count, used }) => (experts / count * used, " in the used groups"),
            None => (experts, ""),
        };
        match self.count_of(name, layers)? {
            top_k if top_k > most => {
                Err(metadata(&self.key(name), &format!("at most the {most} experts{of}"), &top_k.to_string()))
            }
            top_k => Ok(top_k),
        }
    }

    fn gating(&self, config: &mut Config) -> Result<Gating> {
        let key = self.key("expert_gating_func");
        let stored = self.file.opt_u32(&key)?;
        match stored {
            Some(1) => Ok(Gating::Softmax),
            Some(2) => Ok(Gating::Sigmoid),
            None | Some(0) => {
                let blocks = config.layers + config.draft_blocks;
                let glm = GLM_BLOCKS.contains(&blocks) && config.vocab == GLM_VOCAB;
                let (gating, name) = if glm { (Gating::Sigmoid, "sigmoid") } else { (Gating::Softmax, "softmax") };
                let lacks = match stored {
                    None => format!("the file lacks `{key}`"),
                    Some(_) => format!("`{key}` is 0, which says nothing"),
                };
                config.notices.push(format!(
                    "{lacks}: assuming {name}, because it has {blocks} blocks and {} tokens \
                     (47 or 48 and {GLM_VOCAB} mean sigmoid, anything else softmax)",
                    config.vocab
                ));
                Ok(gating)
            }
            Some(other) => Err(unsupported(&key, &other.to_string(), "wglm supports 1 (softmax) and 2 (sigmoid)")),
        }
    }
}
