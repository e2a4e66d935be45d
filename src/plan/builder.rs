//! Builds a plan step by step. Kernels add a method each in their own file.

use super::{ALIGNMENT, Bound, BufferRef, Local, Moved, Plan, Purpose, Step, Tensor, Weight};
use crate::error::{Error, Result};
use crate::quant::{Arithmetic, GROUP, Quant};
use crate::shader::{Constant, Part, Variant};
use crate::wgsl::{Source, source};
use std::collections::HashMap;
use std::sync::Arc;

/// Who adds up a row's products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Team {
    /// A subgroup, of whatever size.
    Subgroup,
    /// The workgroup, through its memory: for adapters without subgroup operations.
    Workgroup,
}

/// What a plan is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Who adds up a row's products.
    pub team: Team,
    /// In what matrix-vector products multiply.
    pub arithmetic: Arithmetic,
}

impl Default for Target {
    /// Subgroups, and f32 throughout.
    fn default() -> Self {
        Self { team: Team::Subgroup, arithmetic: Arithmetic::Float }
    }
}

/// Builds a [`Plan`].
pub struct Builder {
    plan: Plan,
    target: Target,
    prefix: String,
    guard: u64,
    scratch: HashMap<(String, u64), usize>,
    names: HashMap<String, usize>,
}

impl Builder {
    /// An empty plan whose state has room for `pairs` rotary angles.
    pub fn new(target: Target, pairs: usize) -> Self {
        let local = |name: &str, bytes| Local { name: name.into(), bytes, purpose: Purpose::State };
        let state = local("state", 8 + 8 * pairs.max(1) as u64);
        let token = local("token", 4 * Plan::TOKEN_WORDS as u64);
        let plan = Plan { locals: vec![state, token], ..Plan::default() };
        Self { plan, target, prefix: String::new(), guard: 0, scratch: HashMap::new(), names: HashMap::new() }
    }

    /// Appends `bytes` bytes to every buffer made from here on that no kernel should touch.
    pub fn with_guard(mut self, bytes: u64) -> Self {
        self.guard = bytes;
        self
    }

    /// The bytes appended to every scratch and cache buffer.
    pub fn guard(&self) -> u64 {
        self.guard
    }

    /// Starts layer `index`: labels from here on begin with it.
    pub fn layer(&mut self, index: usize) {
        self.prefix = format!("L{index:02}.");
    }

    /// Leaves the layers; what follows is the head, needed only where an output is wanted.
    pub fn head(&mut self) {
        self.prefix.clear();
        self.plan.head = self.plan.steps.len();
    }

    /// Steps so far.
    pub fn steps(&self) -> usize {
        self.plan.steps.len()
    }

    /// The plan.
    pub fn finish(self) -> Plan {
        self.plan
    }

    /// Who adds up a row's products.
    pub fn team(&self) -> Team {
        self.target.team
    }

    /// In what matrix-vector products multiply.
    pub fn arithmetic(&self) -> Arithmetic {
        self.target.arithmetic
    }

    /// A stack of matrices; the same name twice is the same weight.
    pub fn weight(&mut self, name: &str, quant: &'static Quant, shape: [usize; 3]) -> Weight {
        if let Some(&known) = self.names.get(name) {
            return self.plan.weights[known].clone();
        }
        self.names.insert(name.to_owned(), self.plan.weights.len());
        let weight = Weight { index: self.plan.weights.len(), name: Arc::from(name), quant, shape };
        self.plan.weights.push(weight.clone());
        weight
    }

    /// Activations: `shape[1]` vectors of `shape[0]` values, each padded to whole groups of 32.
    ///
    /// The same name and size twice is the same memory: layers reuse each other's. A vector's padding is
    /// zero and stays so, for no kernel writes it.
    pub fn tensor(&mut self, name: &str, shape: [usize; 2]) -> Tensor {
        let stride = shape[0].next_multiple_of(GROUP);
        self.tensor_with_stride(name, shape, stride)
    }

    /// Activations whose vectors start `stride` values apart.
    pub fn tensor_with_stride(&mut self, name: &str, shape: [usize; 2], stride: usize) -> Tensor {
        let bytes = 4 * stride.saturating_mul(shape[1]).saturating_add(GROUP).min(usize::MAX / 8) as u64; // a kernel may read a group past the last value
        let key = (name.to_owned(), bytes);
        let index = self.scratch.get(&key).copied().unwrap_or_else(|| {
            let index = self.local(name.to_owned(), bytes, Purpose::Scratch);
            self.scratch.insert(key, index);
            index
        });
        Tensor { buffer: BufferRef::Local(index), shape, stride }
    }

    /// A buffer of its own for the current layer's cache.
    pub fn cache(&mut self, name: &str, bytes: u64) -> BufferRef {
        let name = format!("{}{name}", self.prefix);
        BufferRef::Local(self.local(name, bytes, Purpose::Cache))
    }

    /// A buffer of its own for what the host writes now and then.
    pub fn setting(&mut self, name: &str, bytes: u64) -> usize {
        self.local(name.to_owned(), bytes, Purpose::State)
    }

    fn local(&mut self, name: String, bytes: u64, purpose: Purpose) -> usize {
        self.plan.locals.push(Local { name, bytes: bytes.saturating_add(3 + self.guard) / 4 * 4, purpose });
        self.plan.locals.len() - 1
    }

    /// The whole of a buffer, bound as `name`.
    pub fn bound(&self, name: &str, buffer: BufferRef) -> Bound {
        let bytes = match buffer {
            BufferRef::Weight(index) => self.plan.weights[index].bytes(),
            BufferRef::Local(index) => self.plan.locals[index].bytes,
        };
        Bound { name: name.to_owned(), buffer, offset: 0, bytes }
    }

    /// The token's state, as `wgsl/lib/state.wgsl` binds it.
    pub fn bound_state(&self) -> Bound {
        self.bound("state", BufferRef::Local(Plan::STATE))
    }

    /// The token, bound as `token`.
    pub fn bound_token(&self) -> Bound {
        self.bound("token", BufferRef::Local(Plan::TOKEN))
    }

    /// The streams of a weight, bound as `role_stream`.
    pub fn bound_weight(&self, role: &str, weight: &Weight) -> Vec<Bound> {
        let bound = |(stream, (offset, bytes)): (&crate::quant::Stream, (u64, u64))| {
            debug_assert_eq!(offset % ALIGNMENT, 0);
            Bound { name: format!("{role}_{}", stream.name), buffer: BufferRef::Weight(weight.index), offset, bytes }
        };
        weight.quant.streams.iter().zip(weight.streams()).map(bound).collect()
    }

    /// A vector of f32, bound as `name`.
    pub fn bound_vector(&self, name: &str, weight: &Weight) -> Bound {
        let bytes = weight.bytes();
        Bound { name: name.to_owned(), buffer: BufferRef::Weight(weight.index), offset: 0, bytes }
    }

    /// Appends a step.
    ///
    /// # Errors
    /// [`Error::Shape`] if the grid has more workgroups than a dimension may.
    pub fn step(
        &mut self,
        label: &str,
        variant: VariantBuilder,
        bindings: Vec<Bound>,
        params: &impl bytemuck::NoUninit,
        grid: [usize; 3],
        moved: Moved,
    ) -> Result<()> {
        let kernel = variant.kernel;
        let variant = self.intern(variant.finish());
        let label = format!("{}{label}", self.prefix);
        let limit = |n: usize| u32::try_from(n).ok().filter(|n| *n <= MAX_GRID);
        let [Some(x), Some(y), Some(z)] = grid.map(limit) else {
            let want = format!("at most {MAX_GRID} workgroups in a dimension");
            return Err(Error::Shape { op: kernel, tensor: label, got: format!("a grid of {grid:?}"), want });
        };
        let params = bytemuck::bytes_of(params).to_vec();
        self.plan.steps.push(Step { label, kernel, variant, bindings, params, grid: [x, y, z], moved });
        Ok(())
    }

    fn intern(&mut self, variant: Variant) -> usize {
        let known = self.plan.variants.iter().position(|v| *v == variant);
        known.unwrap_or_else(|| {
            self.plan.variants.push(variant);
            self.plan.variants.len() - 1
        })
    }
}

/// Workgroups a device must allow in one dimension of a grid.
pub const MAX_GRID: u32 = 65535;

/// Assembles a [`Variant`]: constants, library files, weights in their roles, and last the kernel's own file.
pub struct VariantBuilder {
    kernel: &'static str,
    op: Source,
    size: usize,
    formats: Vec<&'static str>,
    team: Option<&'static str>,
    tag: String,
    constants: Vec<(&'static str, Constant)>,
    parts: Vec<Part>,
}

impl VariantBuilder {
    /// A variant of the kernel in `op`, with workgroups of `size` invocations.
    pub fn new(kernel: &'static str, op: Source, size: usize) -> Self {
        let constants = vec![("WORKGROUP", Constant::U32(size as u32))];
        Self { kernel, op, size, formats: vec![], team: None, tag: String::new(), constants, parts: vec![] }
    }

    /// A number the source calls `name`, and the label `short`; the label leaves it out if that is empty.
    pub fn constant(mut self, name: &'static str, short: &str, value: usize) -> Self {
        self.constants.push((name, Constant::U32(value as u32)));
        if !short.is_empty() {
            self.tag.push_str(&format!("{short}{value}"));
        }
        self
    }

    /// A switch the source calls `name`, and the label `short` where it is on.
    pub fn switch(mut self, name: &'static str, short: &str, on: bool) -> Self {
        self.constants.push((name, Constant::Bool(on)));
        self.tag.push_str(if on { short } else { "" });
        self
    }

    /// A library file.
    pub fn file(mut self, source: Source) -> Self {
        self.parts.push(Part { source, role: "w" });
        self
    }

    /// A library file chosen among several, and the part of the label that tells it; empty for the usual one.
    pub fn tagged(mut self, (source, short): (Source, &'static str)) -> Self {
        self.formats.extend(Some(short).filter(|short| !short.is_empty()));
        self.file(source)
    }

    /// The library file of the team.
    pub fn team(mut self, team: Team) -> Self {
        let (source, short) = match team {
            Team::Subgroup => (source!("lib/team_subgroup.wgsl"), "sg"),
            Team::Workgroup => (source!("lib/team_workgroup.wgsl"), "wg"),
        };
        self.team = Some(short);
        self.file(source)
    }

    /// The files that decode a weight's format, in a role.
    pub fn decode(mut self, role: &'static str, quant: &'static Quant) -> Self {
        self.formats.push(quant.name);
        self.parts.extend(quant.decode_files().into_iter().map(|source| Part { source, role }));
        self
    }

    /// The files that multiply a weight's format, in a role.
    pub fn dot(mut self, role: &'static str, quant: &'static Quant, arithmetic: Arithmetic) -> Self {
        self.formats.push(quant.name);
        self.parts.extend(quant.dot_files(arithmetic).into_iter().map(|source| Part { source, role }));
        self
    }

    fn finish(mut self) -> Variant {
        self.parts.push(Part { source: self.op, role: "w" });
        let parts: String = self.formats.iter().chain(&self.team).map(|part| format!(".{part}")).collect();
        let label = format!("{}{parts}.{}w{}", self.kernel, self.tag, self.size);
        Variant { label, constants: self.constants, parts: self.parts }
    }
}
