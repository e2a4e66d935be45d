//! The table of a model's weights: what each is on the GPU, and where its values come from in the file.
//!
//! Most weights are a tensor of the file, unchanged. Others are cut out of one (`attn_kv_b`, fused gate and up),
//! transposed, decoded (norms, whatever their type), or zero (an absent bias).

use crate::error::{Error, Result};
use crate::gguf::{Gguf, Shape, TensorInfo};
use crate::kernels::Norm;
use crate::plan::{Weight, WeightId};
use crate::quant::{self, Grid, GridBuffer, Quant};
use std::collections::{HashMap, HashSet};
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
    /// The grids by which shaders decode some formats, which no file holds.
    Grid(GridBuffer),
}

impl WeightSource {
    /// The tensor that the values come from.
    fn tensor(&self) -> Option<&str> {
        match self {
            Self::Rows { tensor, .. } | Self::Transposed { tensor, .. } | Self::Decoded { tensor } => Some(tensor),
            Self::Zeros | Self::Grid(_) => None,
        }
    }
}

/// The weights of a model, each once, in the order in which they are uploaded and summed up for the model's
/// fingerprint.
#[derive(Clone, Default)]
pub struct WeightTable {
    /// The weights, which all plans of the model share.
    pub weights: Arc<Vec<Weight>>,
    /// The source of each weight, in the same order, and the number of its file.
    sources: Vec<(usize, WeightSource)>,
    /// The model's file, followed by a separate file of a multi-token-prediction block if there is one.
    files: Vec<Gguf>,
    /// The ids of the weights, by the number of the file and the name.
    names: HashMap<(usize, Arc<str>), WeightId>,
}

impl WeightTable {
    /// The file of a weight's values, and their source in it.
    pub fn source(&self, weight: &Weight) -> (&Gguf, &WeightSource) {
        let (file, source) = &self.sources[weight.id.index()];
        (&self.files[*file], source)
    }

    /// The files that the values come from, that of the model first.
    pub fn files(&self) -> &[Gguf] {
        &self.files
    }

    /// The names of the tensors of the model's file that no weight's values come from.
    pub fn unused(&self) -> impl Iterator<Item = &str> {
        let of_model = self.sources.iter().filter(|(file, _)| *file == 0);
        let used: HashSet<&str> = of_model.filter_map(|(_, source)| source.tensor()).collect();
        let names = self.files.first().into_iter().flat_map(|file| file.tensors().map(|tensor| &*tensor.name));
        names.filter(move |name| !used.contains(name))
    }

    /// Whether a weight's values come from the model's file.
    pub fn in_model_file(&self, weight: &Weight) -> bool {
        self.sources[weight.id.index()].0 == 0
    }

    /// Fails if a file was written to since it was opened.
    pub fn unchanged(&self) -> Result<()> {
        self.files.iter().try_for_each(|file| file.unchanged().map_err(|error| file.name(error)))
    }

    /// Bytes of all weights on the GPU.
    pub fn bytes(&self) -> u64 {
        self.weights.iter().map(Weight::bytes).sum()
    }

    /// Adds a weight, unless there is one of this name.
    fn add(
        &mut self,
        file: usize,
        name: &str,
        quant: &'static Quant,
        shape: [usize; 3],
        source: WeightSource,
    ) -> Weight {
        let key = (file, Arc::from(name));
        if let Some(&known) = self.names.get(&key) {
            return self.weights[known.index()].clone();
        }
        let weight = Weight { id: WeightId::new(self.weights.len()), name: key.1.clone(), quant, shape };
        self.names.insert(key, weight.id);
        Arc::make_mut(&mut self.weights).push(weight.clone());
        self.sources.push((file, source));
        if let Some(Grid { buffer, .. }) = quant.grid() {
            let words = buffer.bytes().len() / 4;
            self.add(0, buffer.name(), &quant::F32, [words, 1, 1], WeightSource::Grid(buffer));
        }
        weight
    }
}

/// Makes weights of the tensors of a file, after checking their shapes and types, and adds them to a table.
pub struct Tensors<'a> {
    file: &'a Gguf,
    /// The number of the file in the table.
    number: usize,
    table: &'a mut WeightTable,
}

impl<'a> Tensors<'a> {
    /// The tensors of the table's first file.
    pub fn of_model(file: &'a Gguf, table: &'a mut WeightTable) -> Self {
        if table.files.is_empty() {
            table.files.push(file.clone());
        }
        Self { file, number: 0, table }
    }

    /// The tensors of a further file.
    pub fn of_further(file: &'a Gguf, table: &'a mut WeightTable) -> Self {
        table.files.push(file.clone());
        Self { file, number: table.files.len() - 1, table }
    }

    fn add(&mut self, name: &str, quant: &'static Quant, shape: [usize; 3], source: WeightSource) -> Weight {
        self.table.add(self.number, name, quant, shape, source)
    }

    /// Whether the file has the tensor.
    pub fn has(&self, name: &str) -> bool {
        self.file.tensor(name).is_some()
    }

    /// The format of a weight, which has this shape. A tensor of the file that changes the weight's products is an
    /// error, since they are computed without it.
    fn require(&self, name: &str, dims: &[usize]) -> Result<&'static Quant> {
        let quant = format_of(self.file.require(name, dims)?)?;
        for kind in ["bias", "scale"] {
            let other = name.strip_suffix("weight").map(|stem| format!("{stem}{kind}"));
            if let Some(other) = other.filter(|other| self.has(other)) {
                let found = format!("a {kind} of `{name}`");
                let remedy = "wglm runs models whose weights have neither biases nor scales";
                return Err(Error::unsupported(format!("the tensor `{other}`"), found, remedy));
            }
        }
        Ok(quant)
    }

    /// A stack of matrices {columns, rows, matrices}.
    pub fn matrices(&mut self, name: &str, shape: [usize; 3]) -> Result<Weight> {
        let wanted = if shape[2] == 1 { &shape[..2] } else { &shape[..] };
        let quant = self.require(name, wanted)?;
        let source = WeightSource::Rows { tensor: name.into(), per: shape[1], first: 0, rows: shape[1] };
        Ok(self.add(name, quant, shape, source))
    }

    /// A matrix {columns, rows}.
    pub fn matrix(&mut self, name: &str, [columns, rows]: [usize; 2]) -> Result<Weight> {
        self.matrices(name, [columns, rows, 1])
    }

    /// A vector of f32, whatever its type in the file.
    pub fn vector(&mut self, name: &str, length: usize) -> Result<Weight> {
        self.require(name, &[length])?;
        Ok(self.add(name, &quant::F32, [length, 1, 1], WeightSource::Decoded { tensor: name.into() }))
    }

    /// A vector of f32, zeros if the file lacks it.
    pub fn vector_or_zeros(&mut self, name: &str, length: usize) -> Result<Weight> {
        if self.has(name) {
            return self.vector(name, length);
        }
        Ok(self.add(name, &quant::F32, [length, 1, 1], WeightSource::Zeros))
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
        let quant = self.require(&joint, &[rank, heads.saturating_mul(per)])?;
        // A transposed row takes values of many blocks of the file, so the values are decoded.
        let keys = WeightSource::Transposed { tensor: joint.clone(), per, rows: nope };
        let keys = self.add(&key_name, quant.exact(), [nope, rank, heads], keys);
        let values = WeightSource::Rows { tensor: joint, per, first: nope, rows: value };
        Ok((keys, self.add(&value_name, quant, shape, values)))
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
        let quant = self.require(&fused, &[columns, per, experts])?;
        let half = |first| WeightSource::Rows { tensor: fused.clone(), per, first, rows };
        let gate = self.add(&gate, quant, shape, half(0));
        Ok((gate, self.add(&up, quant, shape, half(rows))))
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
