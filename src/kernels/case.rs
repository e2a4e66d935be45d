//! A kernel set against its twin: seeded inputs, the values the twin expects, and what to make of the
//! difference.
//!
//! Every buffer of a case ends in a guard band. A case fails if a value is off by more than its bound, if
//! it is not a number, or if the kernel touched anything it should not have: the padding between vectors,
//! the guard band, anything beside the expected places.

use crate::error::{Error, Result};
use crate::plan::{BufferRef, Builder, Plan, Target, Tensor, Tiling, TilingOverride, Weight};
use crate::quant::{self, GROUP, Quant};
use half::f16;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::sync::LazyLock;

const GUARD_BYTES: u64 = 256;
/// Fills what no one has written yet: as f32 and as f16 not a number, as an index far outside everything.
const UNTOUCHED: u32 = 0x7fc1_7fc1;

/// The ticket in a case's state.
pub(super) const TICKET: u32 = 0x7ea;

/// What an output holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// f32 values.
    F32,
    /// f16 values, two to a word.
    F16,
    /// u32 values, compared exactly.
    U32,
}

impl ValueType {
    /// Bytes of one value.
    pub fn bytes(self) -> usize {
        if self == Self::F16 { 2 } else { 4 }
    }

    fn read(self, bytes: &[u8], place: usize) -> f64 {
        let at = place * self.bytes();
        match self {
            Self::F16 => f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f64(),
            Self::F32 => word(bytes, at).map_or(f64::NAN, |w| f32::from_bits(w) as f64),
            Self::U32 => word(bytes, at).map_or(f64::NAN, f64::from),
        }
    }
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_le_bytes(four))
}

/// What the twin expects in one buffer.
#[derive(Debug, Clone)]
pub struct Expected {
    /// The local buffer.
    pub local: usize,
    /// What it holds.
    pub kind: ValueType,
    /// Which of its values: places counted in values.
    pub places: Vec<usize>,
    /// The twin's values.
    pub values: Vec<f64>,
    /// What an error is measured against: the sum of the magnitudes that were added up.
    pub magnitudes: Vec<f64>,
    /// The largest error allowed, as a part of the magnitude.
    pub bound: f64,
}

/// One plan with its inputs and what should come out.
pub struct Case {
    /// Shapes and formats in short.
    pub name: String,
    /// The plan: usually one step.
    pub plan: Plan,
    /// The first content of every local buffer.
    pub locals: Vec<Vec<u8>>,
    /// The content of every weight buffer.
    pub weights: Vec<Vec<u8>>,
    /// The rows of every weight, as a model's file has them.
    pub files: Vec<Vec<u8>>,
    /// The outputs.
    pub expected: Vec<Expected>,
    /// Local buffers that hold something between two steps.
    pub free: Vec<BufferRef>,
}

/// How a case went.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The largest error, as a part of its magnitude.
    pub worst: f64,
    /// The bound of the output it stands in.
    pub bound: f64,
    /// What is wrong, if anything is.
    pub failure: Option<String>,
}

impl Case {
    /// Compares the final content of the local buffers with what the twin expects.
    pub fn judge(&self, finals: &[Vec<u8>]) -> Outcome {
        let mut outcome = Outcome { worst: 0.0, bound: self.expected.first().map_or(0.0, |e| e.bound), failure: None };
        for expected in &self.expected {
            self.judge_values(expected, &finals[expected.local], &mut outcome);
        }
        for (local, content) in finals.iter().enumerate() {
            let touched = self.touched(local, content);
            outcome.failure = outcome.failure.or(touched);
        }
        outcome
    }

    fn judge_values(&self, expected: &Expected, content: &[u8], outcome: &mut Outcome) {
        for ((&place, &want), &magnitude) in expected.places.iter().zip(&expected.values).zip(&expected.magnitudes) {
            let got = expected.kind.read(content, place);
            let error = if got == want { 0.0 } else { (got - want).abs() / magnitude.max(1e-30) };
            if error > outcome.worst {
                (outcome.worst, outcome.bound) = (error, expected.bound);
            }
            let good = error <= expected.bound; // false for what is not a number
            if !good && outcome.failure.is_none() {
                let name = &self.plan.locals[expected.local].name;
                outcome.failure = Some(format!("`{name}`[{place}] is {got}, expected {want}"));
            }
        }
    }

    /// Names a value of a buffer that changed though nothing was expected there.
    fn touched(&self, local: usize, content: &[u8]) -> Option<String> {
        let mut free = vec![false; content.len()];
        if self.free.contains(&BufferRef::Local(local)) {
            free[..content.len() - GUARD_BYTES as usize].fill(true);
        }
        for expected in self.expected.iter().filter(|e| e.local == local) {
            let size = expected.kind.bytes();
            expected.places.iter().for_each(|&p| free[p * size..(p + 1) * size].fill(true));
        }
        let changed = |i: &usize| content[*i] != self.locals[local][*i] && !free[*i];
        let at = (0..content.len()).find(changed)?;
        Some(format!("`{}` changed at byte {at}, where nothing should be written", self.plan.locals[local].name))
    }
}

/// The products of cases, in columns.
static COLUMNS: LazyLock<Vec<TilingOverride>> = LazyLock::new(|| {
    let tiling = Tiling { lanes: 16, rows: 1, columns: 4, workgroup: 256 };
    let steps = ["product", "pair", "query", "gated", "hidden"];
    steps.map(|step| TilingOverride { step: step.to_owned(), tiling }).to_vec()
});

/// Builds a [`Case`].
pub struct CaseBuilder {
    /// The plan, for the kernel under test.
    pub plan: Builder,
    rng: Pcg32,
    locals: Vec<(usize, Vec<u8>)>,
    /// Of each its buffer, and its rows as a file has them.
    weights: Vec<(usize, Vec<u8>, Vec<u8>)>,
    expected: Vec<Expected>,
    free: Vec<BufferRef>,
}

impl CaseBuilder {
    /// An empty case; `pairs` rotary angles in its state.
    pub fn new(target: Target, pairs: usize) -> Self {
        Self::of(Builder::new(target, pairs))
    }

    /// An empty case of chunks of up to `tokens` tokens; `pairs` rotary angles of each.
    pub fn for_chunk(target: Target, pairs: usize, tokens: usize) -> Self {
        Self::of(Builder::for_chunk(target, pairs, tokens))
    }

    /// An empty case of a token alone, or of a chunk of so many without any before them. Four of them are multiplied in
    /// columns.
    pub fn for_tokens(mut target: Target, pairs: usize, tokens: usize) -> Self {
        if tokens == 1 {
            return Self::new(target, pairs);
        }
        if tokens == 4 {
            target.tiling_overrides = COLUMNS.as_slice();
        }
        let mut case = Self::for_chunk(target, pairs, tokens);
        case.chunk(0, tokens);
        case
    }

    fn of(plan: Builder) -> Self {
        let plan = plan.with_guard(GUARD_BYTES);
        Self { plan, rng: Pcg32::seed_from_u64(7), locals: vec![], weights: vec![], expected: vec![], free: vec![] }
    }

    /// Noise, roughly uniform in −1..1.
    pub fn noise(&mut self, count: usize) -> Vec<f32> {
        let next = |rng: &mut Pcg32| (rng.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0;
        (0..count).map(|_| next(&mut self.rng)).collect()
    }

    /// Sets the token and what the host writes before it.
    pub fn state(&mut self, token: u32, position: u32, rotations: &[[f32; 2]]) {
        self.rotated_chunk(position, 1, rotations);
        self.locals.push((Plan::TOKEN, token.to_le_bytes().to_vec()));
    }

    /// Sets what the host writes before a chunk: `count` tokens from `position` on, and the angles of each.
    pub fn rotated_chunk(&mut self, position: u32, count: usize, rotations: &[[f32; 2]]) {
        let mut bytes = [position, count as u32, 0, TICKET].map(u32::to_le_bytes).concat();
        bytes.extend_from_slice(bytemuck::cast_slice(rotations));
        self.locals.push((Plan::STATE, bytes));
    }

    /// An input tensor of noise: the tensor, and its values, vector after vector without padding.
    pub fn input(&mut self, name: &str, shape: [usize; 2]) -> (Tensor, Vec<f32>) {
        let values = self.noise(shape[0] * shape[1]);
        let tensor = self.plan.tensor(name, shape);
        self.fill(&tensor, &values);
        (tensor, values)
    }

    /// Sets a tensor's first content. Padding is zero, as the engine keeps it.
    pub fn fill(&mut self, tensor: &Tensor, values: &[f32]) {
        let BufferRef::Local(index) = tensor.buffer else { return };
        let length = tensor.stride * tensor.shape[1] + GROUP;
        let mut padded = vec![0f32; length];
        for (vector, values) in values.chunks(tensor.shape[0]).enumerate() {
            padded[vector * tensor.stride..][..values.len()].copy_from_slice(values);
        }
        self.locals.push((index, bytemuck::cast_slice(&padded).to_vec()));
    }

    /// Sets a buffer's first bytes.
    pub fn fill_bytes(&mut self, buffer: BufferRef, bytes: Vec<u8>) {
        if let BufferRef::Local(index) = buffer {
            self.locals.push((index, bytes));
        }
    }

    /// A stack of matrices of noise in a format: the weight, and its values.
    ///
    /// # Errors
    /// [`Error::Shape`] if the rows are not whole blocks.
    pub fn weight(&mut self, name: &str, quant: &'static Quant, shape: [usize; 3]) -> Result<(Weight, Vec<f32>)> {
        let [columns, rows, matrices] = shape;
        let count = columns * rows * matrices;
        let seed = u64::from(self.rng.next_u32());
        let row_bytes = quant.row_bytes(columns).ok_or_else(|| broken_row(name, columns))?;
        let file = quant.sample(count, seed);
        let file = &file[..row_bytes * rows * matrices];
        let mut values = vec![0f32; count];
        quant.decode(file, &mut values)?;
        let weight = self.plan.weight(name, quant, shape);
        self.weights.push((weight.index, lay_out(&weight, file)?, file.to_vec()));
        Ok((weight, values))
    }

    /// A vector of noise around 1, as norms have it.
    pub fn vector(&mut self, name: &str, count: usize) -> Result<(Weight, Vec<f32>)> {
        let values: Vec<f32> = self.noise(count).into_iter().map(|v| 1.0 + 0.5 * v).collect();
        Ok((self.vector_of(name, &values)?, values))
    }

    /// A vector of these values.
    ///
    /// # Errors
    /// None: f32 values are whole blocks.
    pub fn vector_of(&mut self, name: &str, values: &[f32]) -> Result<Weight> {
        let weight = self.plan.weight(name, &quant::F32, [values.len(), 1, 1]);
        let file: &[u8] = bytemuck::cast_slice(values);
        self.weights.push((weight.index, lay_out(&weight, file)?, file.to_vec()));
        Ok(weight)
    }

    /// Expects f32 values in a tensor.
    pub fn expect(&mut self, tensor: &Tensor, values: Vec<f64>, magnitudes: Vec<f64>, bound: f64) {
        let BufferRef::Local(local) = tensor.buffer else { return };
        let place = |i: usize| i / tensor.shape[0] * tensor.stride + i % tensor.shape[0];
        let places = (0..values.len()).map(place).collect();
        self.expected.push(Expected { local, kind: ValueType::F32, places, values, magnitudes, bound });
    }

    /// Expects values of another kind from value `first` of a buffer on.
    pub fn expect_at(&mut self, buffer: BufferRef, kind: ValueType, first: usize, values: Vec<f64>, bound: f64) {
        let BufferRef::Local(local) = buffer else { return };
        let places = (first..first + values.len()).collect();
        let magnitudes = values.iter().map(|v| v.abs().max(1.0)).collect();
        self.expected.push(Expected { local, kind, places, values, magnitudes, bound });
    }

    /// Expects f32 values from value `first` of a buffer on, with errors measured against `magnitude`.
    pub fn expect_from(&mut self, buffer: BufferRef, first: usize, values: Vec<f64>, magnitude: f64, bound: f64) {
        let magnitudes = vec![magnitude; values.len()];
        self.expect_slice(buffer, first, values, magnitudes, bound);
    }

    /// Expects f32 values from value `first` of a buffer on, with errors measured against magnitudes.
    pub fn expect_slice(
        &mut self,
        buffer: BufferRef,
        first: usize,
        values: Vec<f64>,
        magnitudes: Vec<f64>,
        bound: f64,
    ) {
        let BufferRef::Local(local) = buffer else { return };
        let places = (first..first + values.len()).collect();
        self.expected.push(Expected { local, kind: ValueType::F32, places, values, magnitudes, bound });
    }

    /// Expects values at places that are not in a row.
    pub(super) fn expect_values(&mut self, expected: Expected) {
        self.expected.push(expected);
    }

    /// Lets a step in between write what it likes to a buffer.
    pub fn allow(&mut self, buffer: BufferRef) {
        self.free.push(buffer);
    }

    /// Lets the steps write what they like to every buffer that has neither content nor an expectation yet. It starts
    /// with zeros, as the engine makes it.
    pub fn allow_between(&mut self) {
        for (index, local) in self.plan.locals().iter().enumerate().skip(Plan::TOKEN + 1) {
            let known = self.locals.iter().any(|l| l.0 == index) || self.expected.iter().any(|e| e.local == index);
            if !known {
                self.free.push(BufferRef::Local(index));
                self.locals.push((index, vec![0; (local.bytes - self.plan.guard()) as usize]));
            }
        }
    }

    /// The case.
    pub fn finish(self, name: impl Into<String>) -> Case {
        let plan = self.plan.finish();
        let blank = |bytes: u64| bytemuck::cast_slice(&vec![UNTOUCHED; bytes.div_ceil(4) as usize]).to_vec();
        let mut locals: Vec<Vec<u8>> = plan.locals.iter().map(|l| blank(l.bytes)).collect();
        for (index, bytes) in self.locals {
            locals[index][..bytes.len()].copy_from_slice(&bytes);
        }
        locals[Plan::STATE][8..12].copy_from_slice(&(plan.splits as u32).to_le_bytes());
        let mut weights: Vec<Vec<u8>> = plan.weights.iter().map(|w| blank(w.bytes())).collect();
        let mut files = vec![Vec::new(); weights.len()];
        for (index, bytes, file) in self.weights {
            weights[index][..bytes.len()].copy_from_slice(&bytes);
            files[index] = file;
        }
        Case { name: name.into(), plan, locals, weights, files, expected: self.expected, free: self.free }
    }
}

fn broken_row(name: &str, columns: usize) -> Error {
    let want = "whole blocks".to_owned();
    Error::Shape { op: "case", tensor: name.to_owned(), got: format!("rows of {columns}"), want }
}

/// A weight's buffer, from rows as the file holds them.
fn lay_out(weight: &Weight, file: &[u8]) -> Result<Vec<u8>> {
    let mut buffer = vec![0; weight.bytes() as usize];
    let blocks = weight.quant.blocks(weight.shape[0]) * weight.shape[1] * weight.shape[2];
    let mut streams: Vec<Vec<u8>> = weight.quant.streams.iter().map(|s| vec![0; s.bytes * blocks]).collect();
    let mut parts: Vec<&mut [u8]> = streams.iter_mut().map(Vec::as_mut_slice).collect();
    weight.quant.repack(file, weight.shape[0], &mut parts)?;
    for ((start, _), stream) in weight.streams().into_iter().zip(&streams) {
        buffer[start as usize..][..stream.len()].copy_from_slice(stream);
    }
    Ok(buffer)
}
