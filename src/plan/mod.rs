//! The plan of a batch of rows, which may be a row alone: a list of steps, fixed before the first of them is computed.
//! A row is one token of a sequence.
//!
//! A plan is plain data. It names the variants of its kernels, the buffers they bind, their parameters and their grids,
//! and can be printed, counted and compared without a GPU. The [`Executor`] makes pipelines, buffers and bind groups of
//! it once, and then submits it batch after batch: one encoder, one pass, one submission each.

mod batch_layout;
mod builder;
mod checker;
mod cost;
mod executor;
mod fusion;
mod ids;
mod kinds;
mod limit;
mod parts;
mod reference;
mod sharing;
mod target;
mod text;
mod tiling;
mod variant;

pub use batch_layout::{BatchHeader, PAGE, RowHeader, batch_bytes, row_bytes};
pub use builder::{Builder, MAX_GRID, SAMPLING_BYTES};
pub use checker::{Checker, Look, RowOf, WrongOutput};
pub use cost::{Cost, read, readings};
pub use executor::Executor;
pub use fusion::Fusions;
pub use ids::{LocalId, WeightId};
pub use kinds::StepKind;
pub use limit::StepLimit;
pub use parts::PART_FIELDS;
pub use reference::{OutputPlace, PlanContents, Probe, Reference, Sample};
pub use sharing::ScratchKey;
pub use target::{Target, Team, Tilings};
pub use text::Table;
pub use tiling::{Tiling, TilingOverride};
pub use variant::VariantBuilder;

use crate::error::{Error, Result};
use crate::quant::Quant;
use crate::shader::Variant;
use std::sync::Arc;

/// A buffer of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BufferRef {
    /// An entry of [`Plan::weights`], shared by every plan of the model.
    Weight(WeightId),
    /// An entry of [`Plan::locals`], owned by whoever executes the plan.
    Local(LocalId),
}

impl BufferRef {
    /// Its place among the local buffers.
    ///
    /// # Errors
    /// [`Error::Shape`] for a weight.
    pub fn local(self) -> Result<LocalId> {
        match self {
            Self::Local(local) => Ok(local),
            Self::Weight(_) => {
                let (got, want) = ("a weight's".to_owned(), "an activation's".to_owned());
                Err(Error::Shape { op: "plan", tensor: "buffer".to_owned(), got, want })
            }
        }
    }
}

/// What a local buffer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Activations, dead after the last step.
    Scratch,
    /// The latent cache of one layer.
    Cache,
    /// What the host writes, and the token, which the host or the GPU chooses.
    State,
}

impl Purpose {
    /// What makes buffers smaller.
    fn remedy(self) -> &'static str {
        match self {
            Self::Cache => "use a smaller context or another GPU",
            Self::Scratch | Self::State => "use a smaller prompt batch or another GPU",
        }
    }
}

/// A buffer the executor makes.
#[derive(Debug, Clone)]
pub struct Local {
    /// A name: the label of the step that writes it, without the layer for what layers share.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// What it holds.
    pub purpose: Purpose,
}

/// A stack of weight matrices, as kernels see it.
#[derive(Clone)]
pub struct Weight {
    /// Its place in [`Plan::weights`].
    pub id: WeightId,
    /// The GGUF name, or what it was made from.
    pub name: Arc<str>,
    /// The format.
    pub quant: &'static Quant,
    /// Columns, rows, matrices: innermost first.
    pub shape: [usize; 3],
}

impl Weight {
    /// The buffer.
    pub fn buffer(&self) -> BufferRef {
        BufferRef::Weight(self.id)
    }

    /// Groups of 32 values in a row.
    pub fn groups(&self) -> usize {
        self.quant.groups(self.shape[0])
    }

    /// Bytes of one matrix on the GPU.
    pub fn matrix_bytes(&self) -> u64 {
        self.quant.gpu_bytes(self.quant.blocks(self.shape[0]) * self.shape[1]) as u64
    }

    /// Where each of the format's streams lies in the tensor's buffer: first byte and bytes.
    pub fn streams(&self) -> Vec<(u64, u64)> {
        let blocks = self.quant.blocks(self.shape[0]) * self.shape[1] * self.shape[2];
        let mut end = 0;
        let place = |stream: &crate::quant::Stream| {
            let (start, bytes) = (end, ((stream.bytes * blocks) as u64).next_multiple_of(16));
            end = (start + bytes).next_multiple_of(ALIGNMENT);
            (start, bytes)
        };
        self.quant.streams.iter().map(place).collect()
    }

    /// Bytes of the tensor's buffer.
    pub fn bytes(&self) -> u64 {
        self.streams().last().map_or(0, |(start, bytes)| start + bytes)
    }
}

/// Every range bound starts at a multiple of this in its buffer: the largest alignment a device may ask for. Only
/// weights used where they lie in the file start, in the buffers over it, at multiples of what the device does ask for.
pub const ALIGNMENT: u64 = 256;

/// f32 activations of a batch: for each row one vector, or several, those of all heads, say. Shapes are innermost first.
#[derive(Debug, Clone, Copy)]
pub struct Tensor {
    /// Where they are.
    pub buffer: BufferRef,
    /// Values of a vector, and vectors of all rows.
    pub shape: [usize; 2],
    /// Values from one vector's start to the next's, of the same row.
    pub stride: usize,
    /// Rows there is room for.
    pub rows: usize,
    /// Values from one row's start to the next's.
    pub pitch: usize,
}

impl Tensor {
    /// Vectors of a row.
    pub fn per_row(&self) -> usize {
        self.shape[1] / self.rows.max(1)
    }

    /// Bytes of all its values, and of the padding between them.
    pub fn bytes(&self) -> u64 {
        let row = self.stride * (self.per_row().max(1) - 1) + self.shape[0];
        (self.pitch * (self.rows.max(1) - 1) + row) as u64 * 4
    }
}

/// A range of a buffer, bound by its WGSL name.
#[derive(Debug, Clone)]
pub struct Bound {
    /// The WGSL name.
    pub name: String,
    /// The buffer.
    pub buffer: BufferRef,
    /// The first byte.
    pub offset: u64,
    /// The bytes.
    pub bytes: u64,
}

/// One dispatch.
#[derive(Debug, Clone)]
pub struct Step {
    /// Layer and stage: `L03.moe.gate_up`.
    pub label: String,
    /// The layer it belongs to.
    pub layer: Option<usize>,
    /// The kernel's name in the registry.
    pub kernel: &'static str,
    /// Place of its variant in [`Plan::variants`].
    pub variant: usize,
    /// Its storage buffers.
    pub bindings: Vec<Bound>,
    /// Its parameters, as the kernel's `Params`.
    pub params: Vec<u8>,
    /// Workgroups in x, y, z.
    pub grid: [u32; 3],
    /// What it costs.
    pub cost: Cost,
    /// What it computes, for the CPU.
    pub reference: Option<Arc<dyn Reference>>,
}

/// The steps of a batch.
#[derive(Clone, Default)]
pub struct Plan {
    /// In order of execution.
    pub steps: Vec<Step>,
    /// Place of the first step that only a wanted output needs: the head.
    pub head: usize,
    /// The distinct shaders.
    pub variants: Vec<Variant>,
    /// The weights, each once. All plans of a model share them.
    pub weights: Arc<Vec<Weight>>,
    /// The buffers the executor makes.
    pub locals: Vec<Local>,
    /// Into how many splits attention divides the cache. The host writes this number with each batch.
    pub splits: usize,
    /// Rows there is room for.
    pub rows: usize,
}

impl Plan {
    /// Place of the batch in [`Plan::locals`]: what the host writes before each step.
    pub const BATCH: LocalId = LocalId::new(0);
    /// Place of the sampled tokens in [`Plan::locals`], as `wgsl/op/sample.wgsl` leaves them: for each place the id that
    /// was sampled, the likeliest id, and how many the filters kept. The places are those of the sequences, and behind them
    /// those of rows whose drafts are verified.
    pub const SAMPLED: LocalId = LocalId::new(1);
    /// Place of the lists of pages in [`Plan::locals`]: in which pages of the KV cache each sequence lies.
    pub const PAGES: LocalId = LocalId::new(2);
    /// Place in [`Plan::locals`] of how tokens of each sequence are sampled: a [`Sampling`](crate::kernels::Sampling) of
    /// each. As long as it holds zeros, the likeliest is chosen.
    pub const SAMPLING: LocalId = LocalId::new(3);
    /// Words of a place in the sampled tokens.
    pub const SAMPLED_WORDS: usize = 3;

    /// A weight.
    pub fn weight(&self, id: WeightId) -> &Weight {
        &self.weights[id.index()]
    }

    /// A local buffer.
    pub fn local(&self, id: LocalId) -> &Local {
        &self.locals[id.index()]
    }

    /// A local buffer, to be changed.
    pub fn local_mut(&mut self, id: LocalId) -> &mut Local {
        &mut self.locals[id.index()]
    }

    /// The local buffers with their places.
    pub fn locals_by_id(&self) -> impl Iterator<Item = (LocalId, &Local)> {
        self.locals.iter().enumerate().map(|(index, local)| (LocalId::new(index), local))
    }

    /// Bytes of all weights on the GPU.
    pub fn weight_memory(&self) -> u64 {
        self.weights.iter().map(Weight::bytes).sum()
    }

    /// Bytes of the local buffers of one purpose.
    pub fn local_memory(&self, purpose: Purpose) -> u64 {
        self.locals.iter().filter(|l| l.purpose == purpose).map(|l| l.bytes).sum()
    }

    /// Refuses, before anything is made, what a device that binds up to `allowed` bytes cannot bind in one piece.
    ///
    /// # Errors
    /// [`Error::TooLarge`] naming the tensor.
    pub fn check_bindings(&self, allowed: u64) -> Result<()> {
        self.check_bound(allowed, |_| true)
    }

    /// As [`Plan::check_bindings`], of weights alone.
    pub(crate) fn check_weights(&self, allowed: u64) -> Result<()> {
        self.check_bound(allowed, |buffer| matches!(buffer, BufferRef::Weight(_)))
    }

    fn check_bound(&self, allowed: u64, wanted: impl Fn(BufferRef) -> bool) -> Result<()> {
        let too_large = |b: &&Bound| b.bytes > allowed && wanted(b.buffer);
        let Some(bound) = self.steps.iter().flat_map(|s| &s.bindings).find(too_large) else { return Ok(()) };
        let (tensor, remedy) = match bound.buffer {
            BufferRef::Weight(id) => (self.weight(id).name.to_string(), "use a smaller quantization or another GPU"),
            BufferRef::Local(id) => (self.local(id).name.clone(), self.local(id).purpose.remedy()),
        };
        Err(Error::TooLarge { tensor, bytes: bound.bytes, limit: "max_storage_buffer_binding_size", allowed, remedy })
    }

    /// What all steps cost.
    pub fn cost(&self) -> Cost {
        self.steps.iter().map(|step| step.cost).sum()
    }
}
