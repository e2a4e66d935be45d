//! The table of a model's weights: what each is on the GPU, and where its values come from in the file.
//!
//! Most weights are a tensor of the file, unchanged. Others are cut out of one (`attn_kv_b`, fused gate and up),
//! transposed, decoded (norms, whatever their type), or zero (an absent bias).

use crate::error::{Error, Result};
use crate::gguf::{Gguf, Shape, TensorInfo};
use crate::kernels::Norm;
use crate::plan::{Weight, WeightId};
use crate::quant::{self, Quant};
use std::collections::HashMap;
use std::sync::Arc;

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

/// The weights of a model, each once, in the order in which they are uploaded and summed up for the model's fingerprint.
#[derive(Clone, Default)]
pub struct WeightTable {
    /// The weights, which all plans of the model share.
    pub weights: Arc<Vec<Weight>>,
    /// The source of each weight, in the same order.
    pub sources: Vec<WeightSource>,
    /// The places of the weights, by name.
    names: HashMap<Arc<str>, WeightId>,
}

impl WeightTable {
    /// The source of a weight's values.
    pub fn source(&self, weight: &Weight) -> &WeightSource {
        &self.sources[weight.id.index()]
    }

    /// Bytes of all weights on the GPU.
    pub fn bytes(&self) -> u64 {
        self.weights.iter().map(Weight::bytes).sum()
    }

    /// Enters a weight, unless there is one of this name.
    fn add(&mut self, name: &str, quant: &'static Quant, shape: [usize; 3], source: WeightSource) -> Weight {
        if let Some(&known) = self.names.get(name) {
            return self.weights[known.index()].clone();
        }
        let weight = Weight { id: WeightId::new(self.weights.len()), name: name.into(), quant, shape };
        self.names.insert(weight.name.clone(), weight.id);
        Arc::make_mut(&mut self.weights).push(weight.clone());
        self.sources.push(source);
        weight
    }
}

/// Makes weights of the tensors of a file, after checking their shapes and types, and enters them into a table.
pub struct Tensors<'a> {
    file: &'a Gguf,
    table: &'a mut WeightTable,
}

impl<'a> Tensors<'a> {
    /// The tensors of a file, for a table.
    pub fn new(file: &'a Gguf, table: &'a mut WeightTable) -> Self {
        Self { file, table }
    }

    /// Whether the file has the tensor.
    pub fn has(&self, name: &str) -> bool {
        self.file.tensor(name).is_some()
    }

    /// A stack of matrices {columns, rows, matrices}.
    pub fn matrices(&mut self, name: &str, shape: [usize; 3]) -> Result<Weight> {
        let wanted = if shape[2] == 1 { &shape[..2] } else { &shape[..] };
        let quant = format_of(self.file.require(name, wanted)?)?;
        let source = WeightSource::Rows { tensor: name.into(), per: shape[1], first: 0, rows: shape[1] };
        Ok(self.table.add(name, quant, shape, source))
    }

    /// A matrix {columns, rows}.
    pub fn matrix(&mut self, name: &str, [columns, rows]: [usize; 2]) -> Result<Weight> {
        self.matrices(name, [columns, rows, 1])
    }

    /// A vector of f32, whatever its type in the file.
    pub fn vector(&mut self, name: &str, length: usize) -> Result<Weight> {
        format_of(self.file.require(name, &[length])?)?;
        Ok(self.table.add(name, &quant::F32, [length, 1, 1], WeightSource::Decoded { tensor: name.into() }))
    }

    /// A vector of f32, zeros if the file lacks it.
    pub fn vector_or_zeros(&mut self, name: &str, length: usize) -> Result<Weight> {
        if self.has(name) {
            return self.vector(name, length);
        }
        Ok(self.table.add(name, &quant::F32, [length, 1, 1], WeightSource::Zeros))
    }

    /// A norm of vectors of `length` values.
    pub fn norm(&mut self, name: &str, length: usize, epsilon: f32) -> Result<Norm> {
        Ok(Norm { weight: self.vector(name, length)?, epsilon })
    }

    /// The projections between the latent and keys, {nope, rank, heads}, and between the latent and values, {rank,
    /// value width, heads}. Early files hold both in one tensor {rank, heads · (nope + value width)}, keys first.
    pub fn latent_pair(&mut self, block: &str, nope: usize, shape: [usize; 3]) -> Result<(Weight, Weight)> {
        let [rank, value, heads] = shape;
        let (key_name, value_name) = (format!("{block}.attn_k_b.weight"), format!("{block}.attn_v_b.weight"));
        let joint = format!("{block}.attn_kv_b.weight");
        if self.has(&key_name) || !self.has(&joint) {
            let keys = self.matrices(&key_name, [nope, rank, heads])?;
            return Ok((keys, self.matrices(&value_name, shape)?));
        }
        let per = nope + value;
        let info = self.file.require(&joint, &[rank, heads * per])?;
        let quant = format_of(info)?;
        // A transposed row takes values of many blocks of the file, so the values are decoded.
        let keys = WeightSource::Transposed { tensor: joint.clone(), per, rows: nope };
        let keys = self.table.add(&key_name, quant.exact(), [nope, rank, heads], keys);
        let values = WeightSource::Rows { tensor: joint, per, first: nope, rows: value };
        Ok((keys, self.table.add(&value_name, quant, shape, values)))
    }

    /// The experts' gate and up {columns, rows, experts}, which some files fuse: gate rows, then up rows.
    pub fn gate_up_experts(&mut self, block: &str, shape: [usize; 3]) -> Result<(Weight, Weight)> {
        let fused = format!("{block}.ffn_gate_up_exps.weight");
        let (gate, up) = (format!("{block}.ffn_gate_exps.weight"), format!("{block}.ffn_up_exps.weight"));
        if !self.has(&fused) {
            return Ok((self.matrices(&gate, shape)?, self.matrices(&up, shape)?));
        }
        let [columns, rows, experts] = shape;
        let per = 2 * rows;
        let quant = format_of(self.file.require(&fused, &[columns, per, experts])?)?;
        let half = |first| WeightSource::Rows { tensor: fused.clone(), per, first, rows };
        let gate = self.table.add(&gate, quant, shape, half(0));
        Ok((gate, self.table.add(&up, quant, shape, half(rows))))
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
