//! Lists the tensors of the file that a model needs, with their shapes, and how weights are made of them.
//!
//! Most weights are a tensor of the file, unchanged. Others are cut out of one (`attn_kv_b`, fused gate and up),
//! transposed, decoded (norms, whatever their type), or zero (an absent bias).

use super::Config;
use crate::error::{Error, Result};
use crate::gguf::{Gguf, Shape, TensorInfo};
use crate::plan::{Builder, Weight};
use crate::quant::{self, Quant};

/// The source of a weight's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WeightSource {
    /// Rows `first..first + rows` of every `per` rows of a tensor, unchanged.
    Rows {
        /// The tensor.
        tensor: String,
        /// The number of rows of one matrix in the file.
        per: usize,
        /// The first row that is taken.
        first: usize,
        /// The number of rows that are taken.
        rows: usize,
    },
    /// The first rows of each matrix, decoded and transposed.
    Transposed {
        /// The tensor.
        tensor: String,
        /// The number of rows of one matrix in the file.
        per: usize,
        /// The number of rows that are taken, from the first on.
        rows: usize,
    },
    /// A vector that is decoded to f32.
    Decoded {
        /// The tensor.
        tensor: String,
    },
    /// Zeros.
    Zeros,
}

/// Collects the weights of a plan, and checks each against the file.
pub struct Weights<'a> {
    file: &'a Gguf,
    /// The sources, indexed like the weights of the plan.
    pub sources: Vec<WeightSource>,
}

impl<'a> Weights<'a> {
    /// Creates an empty collection.
    pub fn new(file: &'a Gguf) -> Self {
        Self { file, sources: Vec::new() }
    }

    /// The weights of another plan, with the same indices.
    pub fn known(file: &'a Gguf, sources: &[WeightSource]) -> Self {
        Self { file, sources: sources.to_vec() }
    }

    /// Whether the file has the tensor.
    pub fn has(&self, name: &str) -> bool {
        self.file.tensor(name).is_some()
    }

    fn add(
        &mut self,
        b: &mut Builder,
        name: &str,
        quant: &'static Quant,
        shape: [usize; 3],
        source: WeightSource,
    ) -> Weight {
        let weight = b.weight(name, quant, shape);
        if weight.index == self.sources.len() {
            self.sources.push(source);
        }
        weight
    }

    /// A stack of matrices {columns, rows, matrices}.
    pub fn matrices(&mut self, b: &mut Builder, name: &str, shape: [usize; 3]) -> Result<Weight> {
        let wanted = if shape[2] == 1 { &shape[..2] } else { &shape[..] };
        let quant = format_of(self.file.require(name, wanted)?)?;
        let source = WeightSource::Rows { tensor: name.into(), per: shape[1], first: 0, rows: shape[1] };
        Ok(self.add(b, name, quant, shape, source))
    }

    /// A matrix {columns, rows}.
    pub fn matrix(&mut self, b: &mut Builder, name: &str, columns: usize, rows: usize) -> Result<Weight> {
        self.matrices(b, name, [columns, rows, 1])
    }

    /// The output matrix {width, vocab}, which is a tensor of its own, or that of the embeddings.
    pub fn output(&mut self, b: &mut Builder, config: &Config) -> Result<Weight> {
        let name = if self.has("output.weight") { "output.weight" } else { "token_embd.weight" };
        self.matrix(b, name, config.width, config.vocab)
    }

    /// A vector of f32, whatever its type in the file.
    pub fn vector(&mut self, b: &mut Builder, name: &str, length: usize) -> Result<Weight> {
        format_of(self.file.require(name, &[length])?)?;
        Ok(self.add(b, name, &quant::F32, [length, 1, 1], WeightSource::Decoded { tensor: name.into() }))
    }

    /// A vector of f32, zeros if the file lacks it.
    pub fn vector_or_zeros(&mut self, b: &mut Builder, name: &str, length: usize) -> Result<Weight> {
        if self.has(name) {
            return self.vector(b, name, length);
        }
        Ok(self.add(b, name, &quant::F32, [length, 1, 1], WeightSource::Zeros))
    }

    /// Takes `rows` rows from `first` on of every matrix of a tensor {columns, per, matrices}, as a weight called
    /// `name`.
    pub fn part(
        &mut self,
        b: &mut Builder,
        name: &str,
        of: &str,
        whole: [usize; 3],
        first: usize,
        rows: usize,
    ) -> Result<Weight> {
        let [columns, per, matrices] = whole;
        let quant = format_of(self.file.require(of, &whole)?)?;
        let source = WeightSource::Rows { tensor: of.into(), per, first, rows };
        Ok(self.add(b, name, quant, [columns, rows, matrices], source))
    }

    /// The projections between the latent and keys, {nope, rank, heads}, and between the latent and values, {rank,
    /// value width, heads}. Early files hold both in one tensor {rank, heads · (nope + value width)}, keys first.
    pub fn latent_pair(&mut self, b: &mut Builder, block: &str, config: &Config) -> Result<(Weight, Weight)> {
        let (nope, rank, heads, value) = (config.nope(), config.latent_rank, config.heads, config.value_width);
        let (key_name, value_name) = (format!("{block}.attn_k_b.weight"), format!("{block}.attn_v_b.weight"));
        let joint = format!("{block}.attn_kv_b.weight");
        if self.has(&key_name) || !self.has(&joint) {
            let keys = self.matrices(b, &key_name, [nope, rank, heads])?;
            return Ok((keys, self.matrices(b, &value_name, [rank, value, heads])?));
        }
        let per = nope + value;
        let info = self.file.require(&joint, &[rank, heads * per])?;
        let quant = format_of(info)?;
        // A transposed row takes values of many blocks of the file, so the values are decoded.
        let keys = WeightSource::Transposed { tensor: joint.clone(), per, rows: nope };
        let keys = self.add(b, &key_name, quant.exact(), [nope, rank, heads], keys);
        let values = WeightSource::Rows { tensor: joint, per, first: nope, rows: value };
        Ok((keys, self.add(b, &value_name, quant, [rank, value, heads], values)))
    }

    /// The experts' gate and up {columns, rows, experts}, which some files fuse: gate rows, then up rows.
    pub fn gate_up_experts(&mut self, b: &mut Builder, block: &str, shape: [usize; 3]) -> Result<(Weight, Weight)> {
        let fused = format!("{block}.ffn_gate_up_exps.weight");
        let (gate, up) = (format!("{block}.ffn_gate_exps.weight"), format!("{block}.ffn_up_exps.weight"));
        if !self.has(&fused) {
            return Ok((self.matrices(b, &gate, shape)?, self.matrices(b, &up, shape)?));
        }
        let [columns, rows, experts] = shape;
        let whole = [columns, 2 * rows, experts];
        let gate = self.part(b, &gate, &fused, whole, 0, rows)?;
        Ok((gate, self.part(b, &up, &fused, whole, rows, rows)?))
    }
}

/// The format of a tensor's values.
pub(super) fn format_of(info: &TensorInfo) -> Result<&'static Quant> {
    quant::by_id(info.ty.id).ok_or_else(|| {
        let known: Vec<&str> = quant::QUANTS.iter().map(|q| q.name).collect();
        Error::Unsupported {
            what: format!("the type of tensor `{}` {}", info.name, Shape(&info.dims)),
            found: format!("`{}`", info.ty.name),
            remedy: format!("supported types: {}", known.join(", ")),
        }
    })
}
