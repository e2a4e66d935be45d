//! The contents of a file of GLM-4.7-Flash's shape: metadata, and tensors in the formats of a Q4_0 file or in a chosen
//! one.

use crate::gguf_writer::GgufWriter;
use wglm_engine::quant::{F32, Q4_0, Q5_K, Q6_K, Q8_0, Quant};

/// The hyper-parameters that determine all shapes.
#[derive(Debug, Clone)]
pub struct Shape {
    /// The number of layers, the first of which is dense.
    pub layers: u64,
    /// Whether a multi-token-prediction block follows them.
    pub mtp: bool,
    /// The number of tokens in the vocabulary.
    pub vocab: u64,
    /// The width of the residual stream.
    pub width: u64,
    /// The number of attention heads.
    pub heads: u64,
    /// The width of the compressed query.
    pub query_rank: u64,
    /// The width of the latent.
    pub latent_rank: u64,
    /// The width of the part of a head's key without position, and of its rotary part.
    pub nope: u64,
    pub rotary: u64,
    /// The width of a head's value.
    pub value_width: u64,
    /// The number of experts in a layer.
    pub experts: u64,
    /// The number of groups of experts, and of those whose experts can be selected.
    pub groups: [u64; 2],
    /// The width of an expert's hidden layer, and that of a dense layer.
    pub expert_width: u64,
    pub dense_width: u64,
    /// The format of all matrices; `None` for those of a Q4_0 file. The routers keep theirs, and so do matrices whose
    /// rows are not whole blocks of this one.
    pub ty: Option<&'static Quant>,
}

impl Shape {
    /// GLM-4.7-Flash with the given number of its 47 layers.
    pub fn glm(layers: u64) -> Self {
        Self {
            layers,
            mtp: false,
            vocab: 154_880,
            width: 2048,
            heads: 20,
            query_rank: 768,
            latent_rank: 512,
            nope: 192,
            rotary: 64,
            value_width: 256,
            experts: 64,
            groups: [1, 1],
            expert_width: 1536,
            dense_width: 10_240,
            ty: None,
        }
    }
}

/// The values of a tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Content {
    Ones,
    Zeros,
    /// Noise of this standard deviation.
    Noise(f32),
}

/// A tensor: its name, its dimensions innermost first, its format, its values.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub name: String,
    pub dims: Vec<u64>,
    pub quant: &'static Quant,
    pub content: Content,
}

impl Tensor {
    /// The size of its data in bytes.
    pub fn bytes(&self) -> u64 {
        self.dims.iter().product::<u64>() * self.quant.bytes as u64 / self.quant.values as u64
    }
}

/// The metadata, with the keys that llama.cpp reads too. There is no vocabulary: prompts are token ids.
pub fn metadata(shape: &Shape) -> GgufWriter {
    let counts = [
        ("block_count", shape.layers + u64::from(shape.mtp)),
        ("nextn_predict_layers", u64::from(shape.mtp)),
        ("context_length", 202_752),
        ("embedding_length", shape.width),
        ("feed_forward_length", shape.dense_width),
        ("attention.head_count", shape.heads),
        ("attention.head_count_kv", 1),
        ("expert_used_count", 4),
        ("expert_group_count", shape.groups[0]),
        ("expert_group_used_count", shape.groups[1]),
        ("expert_gating_func", 2),
        ("leading_dense_block_count", 1),
        ("vocab_size", shape.vocab),
        ("attention.q_lora_rank", shape.query_rank),
        ("attention.kv_lora_rank", shape.latent_rank),
        ("attention.key_length", shape.latent_rank + shape.rotary),
        ("attention.value_length", shape.latent_rank),
        ("attention.key_length_mla", shape.nope + shape.rotary),
        ("attention.value_length_mla", shape.value_width),
        ("expert_feed_forward_length", shape.expert_width),
        ("expert_count", shape.experts),
        ("expert_shared_count", 1),
        ("rope.dimension_count", shape.rotary),
    ];
    let key = |name: &str| format!("deepseek2.{name}");
    let writer = GgufWriter::new().meta("general.architecture", "deepseek2").meta("general.name", "glm-flash-shaped");
    // The file types that GGUF numbers are mixtures of their own, not one format throughout.
    let writer = if shape.ty.is_none() { writer.meta("general.file_type", 2u32) } else { writer };
    let writer = counts.iter().fold(writer, |writer, (name, count)| writer.meta(&key(name), *count as u32));
    writer
        .meta(&key("rope.freq_base"), 1e6f32)
        .meta(&key("attention.layer_norm_rms_epsilon"), 1e-5f32)
        .meta(&key("expert_weights_scale"), 1.8f32)
        .meta(&key("expert_weights_norm"), true)
        .meta("tokenizer.ggml.model", "none")
}

/// Every tensor, in file order.
pub fn tensors(shape: &Shape) -> Vec<Tensor> {
    let mut list = List { tensors: Vec::new(), prefix: String::new(), ty: shape.ty };
    list.add("token_embd.weight", &Q4_0, &[shape.width, shape.vocab]);
    list.fill("output_norm.weight", shape.width, Content::Ones);
    list.add("output.weight", &Q6_K, &[shape.width, shape.vocab]);
    for layer in 0..shape.layers {
        list.prefix = format!("blk.{layer}.");
        list.attention(shape);
        if layer == 0 { list.dense(shape) } else { list.experts(shape) }
    }
    if shape.mtp {
        list.prefix = format!("blk.{}.", shape.layers);
        list.attention(shape);
        list.experts(shape);
        list.mtp(shape);
    }
    list.tensors
}

struct List {
    tensors: Vec<Tensor>,
    prefix: String,
    ty: Option<&'static Quant>,
}

impl List {
    /// A matrix, or a stack of matrices, whose random values preserve the variance of its input.
    fn add(&mut self, name: &str, quant: &'static Quant, dims: &[u64]) {
        let content = Content::Noise(1.0 / (dims[0] as f32).sqrt());
        let whole = |ty: &&Quant| quant.id != F32.id && ty.row_bytes(dims[0] as usize).is_some();
        let quant = self.ty.filter(whole).unwrap_or(quant);
        self.tensors.push(Tensor { name: format!("{}{name}", self.prefix), dims: dims.to_vec(), quant, content });
    }

    /// A vector in which all values are the same.
    fn fill(&mut self, name: &str, length: u64, content: Content) {
        self.tensors.push(Tensor { name: format!("{}{name}", self.prefix), dims: vec![length], quant: &F32, content });
    }

    fn attention(&mut self, s: &Shape) {
        self.fill("attn_norm.weight", s.width, Content::Ones);
        self.fill("attn_q_a_norm.weight", s.query_rank, Content::Ones);
        self.fill("attn_kv_a_norm.weight", s.latent_rank, Content::Ones);
        self.add("attn_q_a.weight", &Q4_0, &[s.width, s.query_rank]);
        self.add("attn_q_b.weight", &Q4_0, &[s.query_rank, s.heads * (s.nope + s.rotary)]);
        self.add("attn_kv_a_mqa.weight", &Q8_0, &[s.width, s.latent_rank + s.rotary]);
        self.add("attn_k_b.weight", &Q8_0, &[s.nope, s.latent_rank, s.heads]);
        self.add("attn_v_b.weight", &Q8_0, &[s.latent_rank, s.value_width, s.heads]);
        self.add("attn_output.weight", &Q4_0, &[s.heads * s.value_width, s.width]);
        self.fill("ffn_norm.weight", s.width, Content::Ones);
    }

    /// The tensors of a multi-token-prediction block in addition to those of a layer. It takes the embeddings and the
    /// output from the model.
    fn mtp(&mut self, s: &Shape) {
        self.add("nextn.eh_proj.weight", &Q8_0, &[2 * s.width, s.width]);
        for name in ["enorm", "hnorm", "shared_head_norm"] {
            self.fill(&format!("nextn.{name}.weight"), s.width, Content::Ones);
        }
    }

    fn dense(&mut self, s: &Shape) {
        self.add("ffn_gate.weight", &Q4_0, &[s.width, s.dense_width]);
        self.add("ffn_up.weight", &Q4_0, &[s.width, s.dense_width]);
        self.add("ffn_down.weight", &Q4_0, &[s.dense_width, s.width]);
    }

    fn experts(&mut self, s: &Shape) {
        self.add("ffn_gate_inp.weight", &F32, &[s.width, s.experts]);
        self.fill("exp_probs_b.bias", s.experts, Content::Zeros);
        self.add("ffn_gate_exps.weight", &Q4_0, &[s.width, s.expert_width, s.experts]);
        self.add("ffn_up_exps.weight", &Q4_0, &[s.width, s.expert_width, s.experts]);
        self.add("ffn_down_exps.weight", &Q4_0, &[s.expert_width, s.width, s.experts]);
        self.add("ffn_gate_shexp.weight", &Q5_K, &[s.width, s.expert_width]);
        self.add("ffn_up_shexp.weight", &Q5_K, &[s.width, s.expert_width]);
        self.add("ffn_down_shexp.weight", &Q6_K, &[s.expert_width, s.width]);
    }
}
