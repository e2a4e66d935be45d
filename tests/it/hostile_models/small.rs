//! A model of two layers, one dense and one of experts, that is written for every test. It is valid, and easy to break.

use crate::common::gguf_writer::{GgufWriter, Meta};
use crate::common::models::fable_file;
use wglm::{Gguf, MetadataValue, Result};
use wglm_engine::gguf::TensorType;

pub const F32: u32 = 0;
pub const Q4_0: u32 = 2;

/// A tensor: its name, its dimensions innermost first, GGML's number of its type.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub name: String,
    pub dims: Vec<u64>,
    pub ty: u32,
}

/// The hyper-parameters that determine all shapes.
#[derive(Debug, Clone, Copy)]
pub struct Numbers {
    pub vocab: u64,
    pub width: u64,
    pub dense_width: u64,
    pub heads: u64,
    pub query_rank: u64,
    pub latent_rank: u64,
    pub rotary: u64,
    pub nope: u64,
    pub value_width: u64,
    pub experts: u64,
    pub used: u64,
    pub shared: u64,
    pub expert_width: u64,
    /// The format of every matrix whose rows consist of whole blocks; the others are f32.
    pub ty: u32,
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            vocab: 40,
            width: 32,
            dense_width: 256,
            heads: 2,
            query_rank: 32,
            latent_rank: 32,
            rotary: 8,
            nope: 16,
            value_width: 16,
            experts: 4,
            used: 2,
            shared: 1,
            expert_width: 32,
            ty: Q4_0,
        }
    }
}

/// A model file that is being written.
#[derive(Debug, Clone)]
pub struct Small {
    pub meta: Vec<(String, Meta)>,
    pub tensors: Vec<Tensor>,
    /// Fills a tensor with this bit pattern of an f32.
    pub poison: Option<(String, f32)>,
    /// The only row of it that is filled.
    pub poisoned_row: Option<usize>,
}

/// The full name of a key of the architecture.
pub fn key(name: &str) -> String {
    format!("deepseek2.{name}")
}

impl Default for Small {
    fn default() -> Self {
        Self::of(&Numbers::default())
    }
}

impl Small {
    pub fn of(n: &Numbers) -> Self {
        let mut small = Self { meta: metadata(n), tensors: Vec::new(), poison: None, poisoned_row: None };
        small.add("token_embd.weight", &[n.width, n.vocab], n.ty);
        small.add("output_norm.weight", &[n.width], F32);
        small.add("output.weight", &[n.width, n.vocab], n.ty);
        small.attention("blk.0", n);
        small.attention("blk.1", n);
        small.swiglu("blk.0", "", n.width, n.dense_width, n.ty);
        small.experts("blk.1", n);
        small
    }

    /// The same with a multi-token-prediction block after the layers.
    pub fn with_block(n: &Numbers) -> Self {
        let mut small = Self::of(n);
        small.set(&key("block_count"), 3u32);
        small.set(&key("nextn_predict_layers"), 1u32);
        small.attention("blk.2", n);
        small.experts("blk.2", n);
        small.add("blk.2.nextn.eh_proj.weight", &[2 * n.width, n.width], n.ty);
        for stem in ["enorm", "hnorm", "shared_head_norm"] {
            small.add(&format!("blk.2.nextn.{stem}.weight"), &[n.width], F32);
        }
        small
    }

    /// A model with random weights that has the tokenizer, the chat template and the kinds of tensors of the
    /// demonstration model, and computes a token in a tenth of the time.
    pub fn like_fable() -> Self {
        Self::like_fable_with(Numbers::default().heads)
    }

    /// The same with this many heads. With four, the kernels for few rows can compute it, among them those for rows of
    /// several conversations.
    pub fn like_fable_with(heads: u64) -> Self {
        Self::like_fable_of(&Numbers { heads, ..Numbers::default() })
    }

    /// The same with these numbers, except that of the tokens.
    pub fn like_fable_of(n: &Numbers) -> Self {
        let fable = Gguf::open(fable_file("q4_0")).unwrap();
        let vocab = fable.get("tokenizer.ggml.tokens").and_then(|tokens| match tokens {
            MetadataValue::Array(tokens) => Some(tokens.len() as u64),
            _ => None,
        });
        let mut small = Self::with_block(&Numbers { vocab: vocab.unwrap(), ..*n });
        small.set(&key("context_length"), 4096u32);
        for (name, value) in fable.metadata().filter(|(name, _)| name.starts_with("tokenizer.")) {
            small.set(name, meta(value));
        }
        small
    }

    /// The same with a short context, so that a tuning measures only short prompts.
    pub fn with_short_context() -> Self {
        let mut small = Self::like_fable();
        small.set(&key("context_length"), 128u32);
        small
    }

    fn attention(&mut self, block: &str, n: &Numbers) {
        let key_width = n.nope + n.rotary;
        let tensors: [(&str, &[u64]); 10] = [
            ("attn_norm", &[n.width]),
            ("attn_q_a", &[n.width, n.query_rank]),
            ("attn_q_a_norm", &[n.query_rank]),
            ("attn_q_b", &[n.query_rank, n.heads * key_width]),
            ("attn_kv_a_mqa", &[n.width, n.latent_rank + n.rotary]),
            ("attn_kv_a_norm", &[n.latent_rank]),
            ("attn_k_b", &[n.nope, n.latent_rank, n.heads]),
            ("attn_v_b", &[n.latent_rank, n.value_width, n.heads]),
            ("attn_output", &[n.heads * n.value_width, n.width]),
            ("ffn_norm", &[n.width]),
        ];
        for (stem, dims) in tensors {
            let ty = if dims.len() == 1 { F32 } else { n.ty };
            self.add(&format!("{block}.{stem}.weight"), dims, ty);
        }
    }

    fn swiglu(&mut self, block: &str, tail: &str, width: u64, hidden: u64, ty: u32) {
        self.add(&format!("{block}.ffn_gate{tail}.weight"), &[width, hidden], ty);
        self.add(&format!("{block}.ffn_up{tail}.weight"), &[width, hidden], ty);
        self.add(&format!("{block}.ffn_down{tail}.weight"), &[hidden, width], ty);
    }

    fn experts(&mut self, block: &str, n: &Numbers) {
        self.add(&format!("{block}.ffn_gate_inp.weight"), &[n.width, n.experts], F32);
        self.add(&format!("{block}.exp_probs_b.bias"), &[n.experts], F32);
        self.add(&format!("{block}.ffn_gate_exps.weight"), &[n.width, n.expert_width, n.experts], n.ty);
        self.add(&format!("{block}.ffn_up_exps.weight"), &[n.width, n.expert_width, n.experts], n.ty);
        self.add(&format!("{block}.ffn_down_exps.weight"), &[n.expert_width, n.width, n.experts], n.ty);
        if n.shared > 0 {
            self.swiglu(block, "_shexp", n.width, n.shared * n.expert_width, n.ty);
        }
    }

    pub fn add(&mut self, name: &str, dims: &[u64], ty: u32) {
        let values = TensorType::from_id(ty).map_or(1, |ty| ty.values as u64);
        let ty = if dims[0].is_multiple_of(values) { ty } else { F32 };
        self.tensors.push(Tensor { name: name.into(), dims: dims.to_vec(), ty });
    }

    /// Sets the value of a key.
    pub fn set(&mut self, key: &str, value: impl Into<Meta>) {
        self.unset(key);
        self.meta.push((key.to_owned(), value.into()));
    }

    pub fn unset(&mut self, key: &str) {
        self.meta.retain(|(name, _)| name != key);
    }

    pub fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|t| t.name == name).unwrap_or_else(|| panic!("no tensor `{name}`"))
    }

    pub fn remove(&mut self, name: &str) {
        self.tensors.retain(|t| t.name != name);
    }

    pub fn names(&self) -> Vec<String> {
        self.tensors.iter().map(|t| t.name.clone()).collect()
    }

    /// Opens the file.
    pub fn open(&self) -> Result<Gguf> {
        Gguf::from_vec(self.file())
    }

    /// The bytes of the file.
    pub fn file(&self) -> Vec<u8> {
        let writer = self.meta.iter().fold(GgufWriter::new(), |w, (key, value)| w.meta(key, value.clone()));
        let write = |w: GgufWriter, t: &Tensor| w.tensor(&t.name, &t.dims, t.ty, &self.bytes(t));
        self.tensors.iter().fold(writer, write).finish()
    }

    /// The bytes of a tensor of this shape, at most eight mebibytes.
    fn bytes(&self, tensor: &Tensor) -> Vec<u8> {
        let (values, block) = TensorType::from_id(tensor.ty).map_or((1, 4), |ty| (ty.values as u64, ty.bytes as u64));
        let count = tensor.dims.iter().fold(1u64, |product, dim| product.saturating_mul(*dim)) / values;
        let bytes = count.saturating_mul(block).min(8 << 20) as usize;
        let mut data: Vec<u8> = match tensor.ty {
            F32 => (0..bytes / 4).flat_map(|i| number(i, tensor.dims.len()).to_le_bytes()).collect(),
            Q4_0 => (0..bytes / 18).flat_map(q4_0).collect(),
            _ => vec![0; bytes],
        };
        if let Some((_, value)) = self.poison.as_ref().filter(|(name, _)| *name == tensor.name) {
            let row = bytes / tensor.dims.get(1).map_or(1, |&rows| rows as usize);
            let damaged = self.poisoned_row.map_or(0..bytes, |index| index * row..(index + 1) * row);
            let block = match tensor.ty {
                F32 => value.to_le_bytes().to_vec(),
                _ => [half::f16::from_f32(*value).to_le_bytes().to_vec(), vec![0x5a; 16]].concat(),
            };
            data[damaged.clone()].copy_from_slice(&block.repeat(damaged.len() / block.len()));
        }
        data
    }
}

/// A value as it was read.
fn meta(value: MetadataValue<'_>) -> Meta {
    match value {
        MetadataValue::I32(number) => number.into(),
        MetadataValue::U32(number) => number.into(),
        MetadataValue::F32(number) => number.into(),
        MetadataValue::Bool(is) => is.into(),
        MetadataValue::String(text) => Meta::String(text.to_vec()),
        MetadataValue::Array(list) => Meta::Array(list.element_type() as u32, list.iter().map(meta).collect()),
        other => panic!("{other:?} in the demonstration model"),
    }
}

/// Small numbers for matrices, numbers about 1 for norms.
fn number(index: usize, dims: usize) -> f32 {
    let noise = (index.wrapping_mul(2_654_435_761) >> 7 & 0xff) as f32 / 255.0 - 0.5;
    if dims == 1 { 1.0 + 0.1 * noise } else { 0.3 * noise }
}

fn q4_0(index: usize) -> Vec<u8> {
    let scale = half::f16::from_f32(0.03).to_le_bytes();
    let nibbles = (0..16).map(|i| ((index * 16 + i).wrapping_mul(2_654_435_761) >> 9) as u8);
    scale.into_iter().chain(nibbles).collect()
}

fn metadata(n: &Numbers) -> Vec<(String, Meta)> {
    let counts = [
        ("block_count", 2),
        ("leading_dense_block_count", 1),
        ("context_length", 64),
        ("vocab_size", n.vocab),
        ("embedding_length", n.width),
        ("feed_forward_length", n.dense_width),
        ("attention.head_count", n.heads),
        ("attention.q_lora_rank", n.query_rank),
        ("attention.kv_lora_rank", n.latent_rank),
        ("attention.key_length_mla", n.nope + n.rotary),
        ("attention.value_length_mla", n.value_width),
        ("rope.dimension_count", n.rotary),
        ("expert_count", n.experts),
        ("expert_used_count", n.used),
        ("expert_shared_count", n.shared),
        ("expert_feed_forward_length", n.expert_width),
        ("expert_gating_func", 2),
    ];
    let mut meta = vec![("general.architecture".to_owned(), Meta::from("deepseek2"))];
    meta.extend(counts.map(|(name, count)| (key(name), Meta::from(count as u32))));
    meta.push((key("attention.layer_norm_rms_epsilon"), 1e-5f32.into()));
    meta.push((key("rope.freq_base"), 10_000f32.into()));
    meta.push((key("expert_weights_scale"), 1.8f32.into()));
    meta.push((key("expert_weights_norm"), true.into()));
    meta.push(("tokenizer.ggml.model".to_owned(), "none".into()));
    meta
}
