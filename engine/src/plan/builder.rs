//! Builds a plan step by step. Each kernel adds a method to the builder, in its own file.

use super::batch_layout::batch_bytes;
use super::{
    ALIGNMENT, Bound, BufferRef, Cost, Local, LocalId, Plan, Purpose, Reference, RowHeader, Step, Target, Tensor,
    Tilings, VariantBuilder, Weight, WeightId,
};
use crate::error::{Error, Result};
use crate::quant::{Arithmetic, F32, GROUP, GridBuffer, Quant};
use crate::shader::Variant;
use crate::wgsl::source;
use std::collections::HashMap;
use std::sync::Arc;

/// The size in bytes of a `kernels::Sampling`, which says how the tokens of a sequence are sampled. It is defined here
/// because that type is in a module above this one, which asserts that the two agree.
pub const SAMPLING_BYTES: usize = 36;

/// Builds a [`Plan`].
pub struct Builder {
    pub(super) plan: Plan,
    target: Target,
    /// The target of kernels that are replaced.
    plain: Target,
    /// See [`Builder::with_depth`].
    pub(super) depth: u64,
    /// Whether products are computed by tiles, for many rows.
    pub(super) tiles: bool,
    /// Whether rows may be of different sequences.
    sequences: bool,
    /// See [`Builder::for_prompts`].
    each: Option<usize>,
    layer: Option<usize>,
    prefix: String,
    guard: u64,
    scratch: HashMap<(String, u64), LocalId>,
    /// The name of a kernel, and what its next steps compute.
    reference: Option<(&'static str, Arc<dyn Reference>)>,
}

impl Builder {
    /// An empty plan of batches of a single row, which has `pairs` rotary angles.
    pub fn new(target: &Target, pairs: usize) -> Self {
        Self::for_rows(target, pairs, 1).for_few(true)
    }

    /// An empty plan of batches of up to `rows` rows, each of which has `pairs` rotary angles. It computes products by
    /// tiles, for many rows.
    pub fn for_rows(target: &Target, pairs: usize, rows: usize) -> Self {
        let local = |name: &str, bytes| Local { name: name.into(), bytes, purpose: Purpose::State };
        let pairs = pairs.max(1);
        let batch = local("batch", batch_bytes(rows, pairs));
        let locals = vec![batch, local("sampled", 0), local("pages", 4), local("sampling", 0)];
        let plan = Plan { locals, splits: 1, rows, pairs, ..Plan::default() };
        let mut builder = Self {
            plan,
            target: target.clone(),
            plain: target.plain(),
            depth: 0,
            tiles: true,
            sequences: false,
            each: None,
            layer: None,
            prefix: String::new(),
            guard: 0,
            scratch: HashMap::new(),
            reference: None,
        };
        builder.room_for_sequences(1);
        builder
    }

    /// If `few`, products are not computed by tiles: the plan uses the kernels of a single row, and each of them
    /// computes all rows.
    pub fn for_few(mut self, few: bool) -> Self {
        self.tiles = !few;
        self
    }

    /// If `different`, the rows may be of different sequences. The plan then uses no kernel whose workgroups read the
    /// KV rows of one sequence for several rows.
    pub fn for_sequences(mut self, different: bool) -> Self {
        self.sequences = different;
        self
    }

    /// The rows may belong to several prompts. Each prompt is computed as in a plan of up to `each` rows for it alone,
    /// so that the results are the same to the bit.
    pub fn for_prompts(mut self, each: usize) -> Self {
        (self.sequences, self.each) = (true, Some(each));
        self
    }

    /// The number of rows that decides how work is divided where that changes the rounding: the capacity of the plan
    /// that computes one of the sequences alone.
    pub fn rows_alone(&self) -> usize {
        self.each.unwrap_or(self.plan.rows)
    }

    /// Records that each workgroup computes `vectors` vectors of one sequence, a power of two. Each row has `per_row`
    /// vectors.
    pub fn align(&mut self, vectors: usize, per_row: usize) {
        let aligned = vectors >> per_row.trailing_zeros().min(vectors.trailing_zeros());
        self.plan.aligned = self.plan.aligned.max(aligned);
    }

    /// Whether all rows are of one sequence.
    pub fn one_sequence(&self) -> bool {
        self.plan.rows == 1 || !self.sequences
    }

    /// Sets the depth that the plan is made for: the maximum number of tokens in the cache, including those of the
    /// batch. Steps that would take too long at this depth are cut into parts.
    pub fn with_depth(mut self, tokens: usize) -> Self {
        self.depth = tokens as u64;
        self
    }

    /// Sizes the buffer for the page lists of all sequences of a batch, which have `pages` entries together.
    pub fn room_for_pages(&mut self, pages: usize) {
        let bytes = 4 * pages.max(1) as u64;
        let lists = self.plan.local_mut(Plan::PAGES);
        lists.bytes = lists.bytes.max(bytes);
    }

    /// Sizes the buffers for the sampled tokens and the sampling parameters of `sequences` sequences.
    pub fn room_for_sequences(&mut self, sequences: usize) {
        self.plan.local_mut(Plan::SAMPLED).bytes = (4 * Plan::SAMPLED_WORDS * sequences) as u64;
        self.plan.local_mut(Plan::SAMPLING).bytes = (SAMPLING_BYTES * sequences) as u64;
    }

    /// Gives the plan the weights of a model, which all plans of the model share.
    pub fn with_weights(mut self, weights: &Arc<Vec<Weight>>) -> Self {
        self.plan.weights = weights.clone();
        self
    }

    /// Appends a guard band of `bytes` bytes, which no kernel should touch, to every buffer that is made from now on.
    pub fn with_guard(mut self, bytes: u64) -> Self {
        self.guard = bytes;
        self
    }

    /// The size in bytes of the guard band after every scratch and cache buffer.
    pub fn guard(&self) -> u64 {
        self.guard
    }

    /// Starts layer `index`. The labels of the steps that follow begin with it.
    pub fn layer(&mut self, index: usize) {
        self.layer = Some(index);
        self.prefix = format!("L{index:02}.");
    }

    /// Leaves the layers.
    pub fn leave_layers(&mut self) {
        self.layer = None;
        self.prefix.clear();
    }

    /// Leaves the layers; the following steps are the head, which is needed only if an output is wanted.
    pub fn head(&mut self) {
        self.leave_layers();
        self.plan.head = self.plan.steps.len();
    }

    /// The number of steps so far.
    pub fn steps(&self) -> usize {
        self.plan.steps.len()
    }

    /// The local buffers so far, with their ids.
    pub fn locals(&self) -> impl Iterator<Item = (LocalId, &Local)> {
        self.plan.locals_by_id()
    }

    /// The finished plan.
    pub fn finish(self) -> Plan {
        self.plan
    }

    /// The target that the plan is made for.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The target for one kernel, by its name. Always use this one to ask for teams, lanes or matrices, because a
    /// kernel that is [replaced](Target::replaced) uses none of them.
    pub fn target_for(&self, kernel: &str) -> &Target {
        if self.target.replaced.contains(kernel) { &self.plain } else { &self.target }
    }

    /// Whether products are computed by tiles.
    pub fn by_tiles(&self) -> bool {
        self.tiles
    }

    /// The maximum number of tokens in the cache: see [`Builder::with_depth`].
    pub fn depth(&self) -> u64 {
        self.depth
    }

    /// The number of rotary angles of a row.
    pub fn pairs(&self) -> usize {
        self.plan.pairs
    }

    /// The maximum number of rows in a batch.
    pub fn rows(&self) -> usize {
        self.plan.rows
    }

    /// Adds a weight, which is a stack of matrices, to a plan of a few steps that belongs to no model.
    pub fn weight(&mut self, name: &str, quant: &'static Quant, shape: [usize; 3]) -> Weight {
        let id = WeightId::new(self.plan.weights.len());
        let weight = Weight { id, name: Arc::from(name), quant, shape };
        Arc::make_mut(&mut self.plan.weights).push(weight.clone());
        weight
    }

    /// Adds the weight that holds a grid to such a plan, unless the plan has it.
    pub fn grid(&mut self, buffer: GridBuffer) -> Weight {
        let known = self.plan.weights.iter().find(|weight| &*weight.name == buffer.name()).cloned();
        known.unwrap_or_else(|| self.weight(buffer.name(), &F32, [buffer.bytes().len() / 4, 1, 1]))
    }

    /// A buffer of activations: `shape[1]` vectors of `shape[0]` values, each padded to whole groups of 32.
    ///
    /// Tensors of the same name and size share memory, so that all layers use the same buffers. The padding of a vector
    /// is zero and stays zero, because no kernel writes to it.
    pub fn tensor(&mut self, name: &str, shape: [usize; 2]) -> Tensor {
        let stride = shape[0].next_multiple_of(GROUP);
        self.tensor_with_stride(name, shape, stride)
    }

    /// A buffer of activations whose vectors start `stride` values apart.
    pub fn tensor_with_stride(&mut self, name: &str, shape: [usize; 2], stride: usize) -> Tensor {
        let values = stride.saturating_mul(shape[1]).saturating_add(GROUP); // a kernel may read a group past the last
        let bytes = 4 * values.min(usize::MAX / 8) as u64;
        let key = (name.to_owned(), bytes);
        let local = self.scratch.get(&key).copied().unwrap_or_else(|| {
            let local = self.local(name.to_owned(), bytes, Purpose::Scratch);
            self.scratch.insert(key, local);
            local
        });
        let rows = if shape[1].is_multiple_of(self.rows()) { self.rows() } else { 1 };
        Tensor { buffer: BufferRef::Local(local), shape, stride, rows, pitch: stride * shape[1] / rows }
    }

    /// A new buffer for the cache of the current layer.
    pub fn cache(&mut self, name: &str, bytes: u64) -> BufferRef {
        let name = format!("{}{name}", self.prefix);
        BufferRef::Local(self.local(name, bytes, Purpose::Cache))
    }

    /// A new buffer for values that the host writes now and then.
    pub fn setting(&mut self, name: &str, bytes: u64) -> LocalId {
        self.local(name.to_owned(), bytes, Purpose::State)
    }

    fn local(&mut self, name: String, bytes: u64, purpose: Purpose) -> LocalId {
        let id = LocalId::new(self.plan.locals.len());
        self.plan.locals.push(Local { name, bytes: bytes.saturating_add(3 + self.guard) / 4 * 4, purpose });
        id
    }

    /// A binding of a whole buffer as `name`.
    pub fn bound(&self, name: &str, buffer: BufferRef) -> Bound {
        let bytes = match buffer {
            BufferRef::Weight(id) => self.plan.weight(id).bytes(),
            BufferRef::Local(id) => self.plan.local(id).bytes,
        };
        Bound { name: name.to_owned(), buffer, offset: 0, bytes }
    }

    /// Sets into how many splits attention divides the cache. The host passes this number to all kernels of the plan.
    pub fn split(&mut self, splits: usize) {
        self.plan.splits = splits;
    }

    /// Adds the file that reads the batch, for a kernel that is the same in plans of one row and of several.
    pub fn batch_files(&self, variant: VariantBuilder) -> VariantBuilder {
        self.batch_files_of(variant, false)
    }

    /// Adds the file that reads the batch. With `one_row`, the kernel is compiled for a single row.
    pub fn batch_files_of(&self, variant: VariantBuilder, one_row: bool) -> VariantBuilder {
        variant
            .switch("ONE_ROW", "", one_row)
            .constant("PAIRS", "p", self.plan.pairs)
            .labelled(if one_row { "one" } else { "" })
            .file(source!("lib/batch.wgsl"))
    }

    /// The binding that these files need.
    pub fn bound_batch(&self) -> Bound {
        self.bound("batch", BufferRef::Local(Plan::BATCH))
    }

    /// Like [`Builder::batch_files`], for a kernel that only needs the number of rows. In a plan of a single row that
    /// number is known, so the kernel does not bind the buffer: every binding costs time.
    pub fn count_files(&self, variant: VariantBuilder) -> VariantBuilder {
        match self.plan.rows {
            1 => variant.tagged((source!("lib/one_row.wgsl"), "one")),
            _ => self.batch_files(variant),
        }
    }

    /// Adds the files of bit tricks that weight formats share, for an arithmetic. They index a vector of words if that
    /// is fast: on an H100, int8 products with Q5_K and Q6_K took up to 10 % longer with scales arranged so that
    /// nothing is indexed, but products of floats were faster.
    pub fn bits_files(&self, variant: VariantBuilder, arithmetic: Arithmetic) -> VariantBuilder {
        let word = match (self.target().tilings, arithmetic) {
            (Tilings::Nvidia, Arithmetic::Int) => source!("lib/word_indexed.wgsl"),
            _ => source!("lib/word_selected.wgsl"),
        };
        variant.file(word).file(source!("lib/bits.wgsl"))
    }

    /// The binding that these files need, if any.
    pub fn bound_count(&self) -> Option<Bound> {
        (self.plan.rows > 1).then(|| self.bound_batch())
    }

    /// A binding of the lists of pages as `pages`.
    pub fn bound_pages(&self) -> Bound {
        self.bound("pages", BufferRef::Local(Plan::PAGES))
    }

    /// Adds the files that read the batch and find the ids of the rows' tokens.
    pub fn token_files(&self, variant: VariantBuilder) -> VariantBuilder {
        self.batch_files(variant)
            .constant("SAMPLED", "", RowHeader::SAMPLED as usize)
            .file(source!("lib/row_token.wgsl"))
    }

    /// A binding of the sampled tokens as `sampled`.
    pub fn bound_sampled(&self) -> Bound {
        self.bound("sampled", BufferRef::Local(Plan::SAMPLED))
    }

    /// A binding of the sampling parameters of all sequences as `sampling`.
    pub fn bound_sampling(&self) -> Bound {
        self.bound("sampling", BufferRef::Local(Plan::SAMPLING))
    }

    /// Bindings of the streams of a weight, each named by the role and the stream: `gate_scales`, for example.
    pub fn bound_weight(&self, role: &str, weight: &Weight) -> Vec<Bound> {
        let bound = |(stream, (offset, bytes)): (&crate::quant::Stream, (u64, u64))| {
            debug_assert_eq!(offset % ALIGNMENT, 0);
            Bound { name: format!("{role}_{}", stream.name), buffer: weight.buffer(), offset, bytes }
        };
        let streams = weight.quant.streams.iter().zip(weight.streams()).map(bound);
        streams.chain(self.bound_grid(weight.quant)).collect()
    }

    /// A binding of the buffer with a format's grid, if it has one. Weights of a step share it.
    fn bound_grid(&self, quant: &Quant) -> Option<Bound> {
        let name = quant.grid()?.buffer.name();
        let grid = self.plan.weights.iter().find(|weight| &*weight.name == name)?;
        Some(self.bound(name, grid.buffer()))
    }

    /// States what the next step of a kernel computes. If the step is split into parts, this describes all of them
    /// together.
    pub fn computes(&mut self, kernel: &'static str, reference: impl Reference + 'static) {
        self.reference = Some((kernel, Arc::new(reference)));
    }

    /// Appends a step.
    ///
    /// # Errors
    /// [`Error::Shape`] if the grid has too many workgroups in a dimension, or a workgroup has fewer invocations than
    /// [`Target::MIN_WORKGROUP`].
    pub fn step(
        &mut self,
        label: &str,
        variant: VariantBuilder,
        bindings: Vec<Bound>,
        params: &impl bytemuck::NoUninit,
        grid: [usize; 3],
        cost: Cost,
    ) -> Result<()> {
        let step = self.prepared(label, variant, bindings, grid, cost)?;
        self.push(Step { params: bytemuck::bytes_of(params).to_vec(), ..step });
        Ok(())
    }

    pub(super) fn push(&mut self, step: Step) {
        self.plan.steps.push(step);
    }

    /// Makes a step without parameters, and adds its variant to the plan unless the plan has it.
    pub(super) fn prepared(
        &mut self,
        label: &str,
        variant: VariantBuilder,
        bindings: Vec<Bound>,
        grid: [usize; 3],
        cost: Cost,
    ) -> Result<Step> {
        let kernel = variant.kernel;
        let label = format!("{}{label}", self.prefix);
        variant.check_size(&label)?;
        let variant = self.intern(variant.finish());
        let bindings = once_each(kernel, &label, bindings)?;
        let limit = |n: usize| u32::try_from(n).ok().filter(|n| *n <= MAX_GRID);
        let [Some(x), Some(y), Some(z)] = grid.map(limit) else {
            let want = format!("at most {MAX_GRID} workgroups in a dimension");
            return Err(Error::Shape { op: kernel, tensor: label, got: format!("a grid of {grid:?}"), want });
        };
        let reference = self.reference.as_ref().filter(|(of, _)| *of == kernel).map(|(_, it)| it.clone());
        let (layer, grid) = (self.layer, [x, y, z]);
        Ok(Step { label, layer, kernel, variant, bindings, params: vec![], grid, cost, reference })
    }

    fn intern(&mut self, variant: Variant) -> usize {
        let known = self.plan.variants.iter().position(|v| *v == variant);
        known.unwrap_or_else(|| {
            self.plan.variants.push(variant);
            self.plan.variants.len() - 1
        })
    }
}

/// The bindings without duplicates: weights of a step share the grid of their format.
fn once_each(op: &'static str, label: &str, bindings: Vec<Bound>) -> Result<Vec<Bound>> {
    let mut once: Vec<Bound> = Vec::with_capacity(bindings.len());
    for bound in bindings {
        match once.iter().find(|known| known.name == bound.name) {
            None => once.push(bound),
            Some(known) if *known == bound => {}
            Some(known) => {
                let (tensor, got) = (format!("{label}.{}", bound.name), format!("{bound:?}"));
                return Err(Error::Shape { op, tensor, got, want: format!("the same as {known:?}") });
            }
        }
    }
    Ok(once)
}

/// The number of workgroups that every device allows in one dimension of a grid.
pub const MAX_GRID: u32 = 65535;
