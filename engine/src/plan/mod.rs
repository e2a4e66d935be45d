//! The plan of a batch of one or more rows: a list of steps, fixed before the first of them is computed. A row is one
//! token of a sequence.
//!
//! A plan is plain data. It names the variants of its kernels, the buffers they bind, their parameters and their grids,
//! and can be printed, counted and compared without a GPU. The [`Executor`] makes its pipelines, buffers and bind
//! groups once, and then submits it batch after batch: one encoder, one pass, one submission each.

mod batch_layout;
mod builder;
mod checker;
mod choices;
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

pub use batch_layout::{BatchHeader, PAGE, RowHeader, batch_bytes, laid_out, row_bytes};
pub use builder::{Builder, MAX_GRID, SAMPLING_BYTES};
pub use checker::{Checker, Look, RowOf, WrongOutput};
pub use choices::{Choices, Grouping, RowRange, SplitsChoice, StepChoice};
pub use cost::{Cost, read, readings};
pub use executor::Executor;
pub use fusion::Fusions;
pub use ids::{LocalId, WeightId};
pub use kinds::StepKind;
pub use limit::StepLimit;
pub use parts::PART_FIELDS;
pub use reference::{OutputPlace, PlanContents, Probe, Reference, SLACK, Sample};
pub use sharing::ScratchKey;
pub use target::{Target, Team, Tilings};
pub use text::Table;
pub use tiling::{ProductTile, Tiling};
pub use variant::VariantBuilder;

use crate::error::{Error, Result};
use crate::quant::Quant;
use crate::shader::Variant;
use std::sync::Arc;

/// A buffer of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BufferRef {
    /// An entry of [`Plan::weights`]. All plans of a model share these buffers.
    Weight(WeightId),
    /// An entry of [`Plan::locals`]. These buffers belong to the executor of the plan.
    Local(LocalId),
}

impl BufferRef {
    /// The index of the buffer in [`Plan::locals`].
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

/// The purpose of a local buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It holds activations, which other submissions may overwrite.
    Scratch,
    /// It is the latent cache of one layer.
    Cache,
    /// It holds what the host writes, or the sampled tokens.
    State,
}

impl Purpose {
    /// What the user can do if buffers of this purpose are too large.
    fn remedy(self) -> &'static str {
        match self {
            Self::Cache => "use a smaller context or another GPU",
            Self::Scratch | Self::State => "use a smaller prompt batch or another GPU",
        }
    }
}

/// A buffer that the executor makes.
#[derive(Debug, Clone)]
pub struct Local {
    /// The name, which is the label of the step that writes the buffer. If layers share the buffer, it is without the
    /// layer.
    pub name: String,
    /// The size in bytes.
    pub bytes: u64,
    /// The purpose.
    pub purpose: Purpose,
}

/// A weight as kernels see it: a stack of matrices.
#[derive(Clone)]
pub struct Weight {
    /// Its index in [`Plan::weights`].
    pub id: WeightId,
    /// The name in the GGUF file, or one derived from the name of the tensor that the weight is computed from.
    pub name: Arc<str>,
    /// The format.
    pub quant: &'static Quant,
    /// The numbers of columns, rows and matrices: innermost first.
    pub shape: [usize; 3],
}

impl Weight {
    /// The buffer.
    pub fn buffer(&self) -> BufferRef {
        BufferRef::Weight(self.id)
    }

    /// The number of groups of 32 values in a row.
    pub fn groups(&self) -> usize {
        self.quant.groups(self.shape[0])
    }

    /// The size in bytes of one matrix on the GPU.
    pub fn matrix_bytes(&self) -> u64 {
        self.quant.gpu_bytes(self.quant.blocks(self.shape[0]) * self.shape[1]) as u64
    }

    /// The position of each stream of the format in the weight's buffer: its first byte, and its size in bytes.
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

    /// The size in bytes of the weight's buffer.
    pub fn bytes(&self) -> u64 {
        self.streams().last().map_or(0, |(start, bytes)| start + bytes)
    }
}

/// Every bound range starts at a multiple of this in its buffer. It is the largest alignment that a device may require.
/// The exception is weights that are used in place, in the file: they start at multiples of what the device requires.
pub const ALIGNMENT: u64 = 256;

/// Activations of a batch in f32: for each row one vector, or several, such as those of all heads. Shapes are innermost
/// first.
#[derive(Debug, Clone, Copy)]
pub struct Tensor {
    /// The buffer.
    pub buffer: BufferRef,
    /// The number of values of a vector, and the number of vectors of all rows together.
    pub shape: [usize; 2],
    /// The number of values from the start of a vector to that of the next one of the same row.
    pub stride: usize,
    /// The maximum number of rows in a batch.
    pub rows: usize,
    /// The number of values from the start of a row to that of the next one.
    pub pitch: usize,
}

impl Tensor {
    /// The number of vectors of a row.
    pub fn per_row(&self) -> usize {
        self.shape[1] / self.rows.max(1)
    }

    /// The size in bytes of all values, with the padding between them.
    pub fn bytes(&self) -> u64 {
        let row = self.stride * (self.per_row().max(1) - 1) + self.shape[0];
        (self.pitch * (self.rows.max(1) - 1) + row) as u64 * 4
    }
}

/// A range of a buffer that is bound to a name of the shader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The name in WGSL.
    pub name: String,
    /// The buffer.
    pub buffer: BufferRef,
    /// The first byte.
    pub offset: u64,
    /// The size in bytes.
    pub bytes: u64,
}

/// A step of a plan, which is one dispatch.
#[derive(Debug, Clone)]
pub struct Step {
    /// The label, which consists of the layer and the stage: `L03.moe.gate_up`.
    pub label: String,
    /// The layer that the step belongs to, if any.
    pub layer: Option<usize>,
    /// The name of the kernel in the registry.
    pub kernel: &'static str,
    /// The index of the shader in [`Plan::variants`].
    pub variant: usize,
    /// The storage buffers that the step binds.
    pub bindings: Vec<Bound>,
    /// The bytes of the kernel's `Params`.
    pub params: Vec<u8>,
    /// The numbers of workgroups in x, y and z.
    pub grid: [u32; 3],
    /// The cost.
    pub cost: Cost,
    /// What the step computes, so that the CPU can check it.
    pub reference: Option<Arc<dyn Reference>>,
}

/// The steps of a batch.
#[derive(Clone, Default)]
pub struct Plan {
    /// The steps, in the order of execution.
    pub steps: Vec<Step>,
    /// The index of the first step of the head, whose steps are needed only if an output is wanted.
    pub head: usize,
    /// The shaders, each once.
    pub variants: Vec<Variant>,
    /// The weights, each once. All plans of a model share them.
    pub weights: Arc<Vec<Weight>>,
    /// The buffers that the executor makes.
    pub locals: Vec<Local>,
    /// Into how many splits attention divides the cache. The host writes this number with each batch.
    pub splits: usize,
    /// The maximum number of rows in a batch.
    pub rows: usize,
    /// The first row of a sequence has to be a multiple of this number; 0 if the plan has no kernel for prompts of
    /// several sequences.
    pub aligned: usize,
    /// The number of rotary angles of a row.
    pub pairs: usize,
}

impl Plan {
    /// The index in [`Plan::locals`] of the batch, which the host writes before each submission.
    pub const BATCH: LocalId = LocalId::new(0);
    /// The index in [`Plan::locals`] of the sampled tokens, as `wgsl/op/sample.wgsl` writes them: for each sequence,
    /// then for each row whose drafts are verified, the sampled id, the most likely id, and the number of tokens that
    /// passed the filters.
    pub const SAMPLED: LocalId = LocalId::new(1);
    /// The index in [`Plan::locals`] of the page lists: the pages of the KV cache that each sequence has.
    pub const PAGES: LocalId = LocalId::new(2);
    /// The index in [`Plan::locals`] of the sampling parameters: a [`Sampling`](crate::kernels::Sampling) for each
    /// sequence. If it is all zeros, the most likely token is chosen.
    pub const SAMPLING: LocalId = LocalId::new(3);
    /// The number of words for each sampled token.
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

    /// The local buffers with their ids.
    pub fn locals_by_id(&self) -> impl Iterator<Item = (LocalId, &Local)> {
        self.locals.iter().enumerate().map(|(index, local)| (LocalId::new(index), local))
    }

    /// The size in bytes of all weights on the GPU.
    pub fn weight_memory(&self) -> u64 {
        self.weights.iter().map(Weight::bytes).sum()
    }

    /// The size in bytes of all local buffers of one purpose.
    pub fn local_memory(&self, purpose: Purpose) -> u64 {
        self.locals.iter().filter(|l| l.purpose == purpose).map(|l| l.bytes).sum()
    }

    /// Fails if the plan binds a range of more than `allowed` bytes, before anything is allocated.
    ///
    /// # Errors
    /// [`Error::TooLarge`] naming the tensor.
    pub fn check_bindings(&self, allowed: u64) -> Result<()> {
        self.check_bound(allowed, |_| true)
    }

    /// Like [`Plan::check_bindings`], but for weights alone.
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

    /// The cost of all steps together.
    pub fn cost(&self) -> Cost {
        self.steps.iter().map(|step| step.cost).sum()
    }
}
