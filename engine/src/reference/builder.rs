//! Builds a case: makes its inputs from seeded noise.

use super::Case;
use super::case::GUARD_BYTES;
use super::cases::columns_for;
use crate::error::{Error, Result};
use crate::kernels::matvec::HALF;
use crate::kernels::rounded::WORDS;
use crate::kernels::{Cache, CacheType, Input, Norm, Residual};
use crate::plan::{
    BatchHeader, BufferRef, Builder, Choices, LocalId, PAGE, Plan, RowHeader, RowRange, StepChoice, Target, Tensor,
    Tiling, Weight, WeightId, laid_out,
};
use crate::quant::{self, Arithmetic, Family, GROUP, QUANTS, Quant};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::mem::offset_of;
use std::sync::OnceLock;

/// The fill pattern of buffers that have not been written yet: a NaN as f32 and as f16, and out of range as an index.
const UNTOUCHED: u32 = 0x7fc1_7fc1;

/// The tilings of the products of cases: `None` for the table's, and others that stage activations or read them
/// directly, whichever the table's does. Cases rotate through them. Their number is prime, so that they are combined
/// with everything else that cases rotate through.
const TILINGS: [Option<Tiling>; 7] = [
    None,
    Some(Tiling { lanes: 8, rows: 4, workgroup: 64, columns: 1, direct: true }),
    Some(Tiling { lanes: 16, rows: 4, workgroup: 64, columns: 1, direct: false }),
    Some(Tiling { lanes: 32, rows: 2, workgroup: 64, columns: 1, direct: true }),
    None,
    Some(Tiling { lanes: 16, rows: 1, workgroup: 128, columns: 1, direct: true }),
    Some(Tiling { lanes: 8, rows: 2, workgroup: 128, columns: 1, direct: false }),
];

/// A target that gives the products of case number `turn` their tiling. With four tokens, products that can take all
/// vectors together do so.
pub(super) fn by_turns(target: &Target, turn: usize, tokens: usize) -> Target {
    const STEPS: [&str; 8] = ["product", "pair", "query", "gated", "hidden", "absorb", "down", "output"];
    let float = target.arithmetic == Arithmetic::Float; // products of bytes have only one form
    let mut tiling = TILINGS[turn % TILINGS.len()].filter(|_| float);
    if tokens == 4 {
        let direct = tiling.is_some_and(|tiling| tiling.direct);
        tiling = Some(Tiling { lanes: 16, rows: 1, columns: 4, workgroup: 256, direct });
    }
    let choice = |choice| STEPS.map(|step| StepChoice { step: step.to_owned(), rows: RowRange::ALL, choice }).to_vec();
    let choices = Choices { tilings: tiling.map(choice).unwrap_or_default(), ..Choices::clone(&target.choices) };
    Target { choices: choices.into(), ..target.clone() }
}

/// Builds a [`Case`].
pub struct CaseBuilder {
    /// The plan, for the kernel under test.
    pub plan: Builder,
    rng: Pcg32,
    locals: Vec<(LocalId, Vec<u8>)>,
    /// For each weight its buffer, and its rows as in a file.
    weights: Vec<(WeightId, Vec<u8>, Vec<u8>)>,
    free: Vec<BufferRef>,
}

impl CaseBuilder {
    /// An empty case with `pairs` rotary angles for each row.
    pub fn new(target: &Target, pairs: usize) -> Self {
        Self::of(Builder::new(target, pairs))
    }

    /// An empty case of batches of up to `rows` rows, computed by tiles, with `pairs` rotary angles for each row.
    pub fn for_rows(target: &Target, pairs: usize, rows: usize) -> Self {
        Self::of(Builder::for_rows(target, pairs, rows))
    }

    /// An empty case of one token, or of a batch of `tokens` tokens without any before them, computed without tiles.
    pub fn for_tokens(target: &Target, pairs: usize, tokens: usize) -> Self {
        if tokens == 1 {
            return Self::new(target, pairs);
        }
        let mut case = Self::of(Builder::for_rows(target, pairs, tokens).for_few(true));
        case.consecutive(0, tokens);
        case
    }

    /// A case of `count` tokens from `position` with rotary angles, alone or in a batch of up to `room`.
    pub(super) fn rotated(target: &Target, pairs: usize, position: u32, (room, count): (usize, usize)) -> Self {
        let mut case = Self::for_tokens(target, pairs, room);
        case.rotated_tokens(position, count);
        case
    }

    /// Sets the batch: `count` tokens from `position`, with their rotary angles.
    pub(super) fn rotated_tokens(&mut self, position: u32, count: usize) {
        let pairs = self.plan.pairs();
        let angles: Vec<_> = (position..).take(count).flat_map(|position| rotations(position, pairs)).collect();
        self.rotated_rows(&RowHeader::consecutive(position as usize, &vec![0; count]), &angles);
    }

    fn of(plan: Builder) -> Self {
        let plan = plan.with_guard(GUARD_BYTES);
        Self { plan, rng: Pcg32::seed_from_u64(7), locals: vec![], weights: vec![], free: vec![] }
    }

    /// Noise, roughly uniform in −1..1.
    pub fn noise(&mut self, count: usize) -> Vec<f32> {
        let next = |rng: &mut Pcg32| (rng.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0;
        (0..count).map(|_| next(&mut self.rng)).collect()
    }

    /// Sets the rows of the batch, for a case that uses no rotary angles.
    pub fn rows(&mut self, rows: &[RowHeader]) {
        self.rotated_rows(rows, &[]);
    }

    fn rotated_rows(&mut self, rows: &[RowHeader], rotations: &[[f32; 2]]) {
        let (header, rows) = laid_out(rows, 0, 0);
        let mut bytes = bytemuck::bytes_of(&header).to_vec();
        let pairs = self.plan.pairs();
        for (row, header) in rows.enumerate() {
            bytes.extend_from_slice(bytemuck::bytes_of(&header));
            let of_row = rotations.get(row * pairs..(row + 1) * pairs);
            bytes.extend_from_slice(bytemuck::cast_slice(of_row.unwrap_or(&vec![[0f32; 2]; pairs])));
        }
        self.locals.push((Plan::BATCH, bytes));
    }

    /// A cache for `tokens` tokens, whose pages are out of order and do not begin with the first one of the pool.
    pub fn cache(&mut self, ty: CacheType, rank: usize, rotary: usize, tokens: usize) -> Cache {
        let pages = tokens.div_ceil(PAGE);
        let cache = self.plan.latent_cache(ty, rank, rotary, (pages + 1) * PAGE);
        let list: Vec<u32> = (0..pages).map(|page| (pages - page) as u32).collect();
        self.locals.push((Plan::PAGES, bytemuck::cast_slice(&list).to_vec()));
        cache
    }

    /// The index in the pool of KV row `t` of such a cache for `tokens` tokens.
    pub fn kv_index(t: usize, tokens: usize) -> usize {
        (tokens.div_ceil(PAGE) - t / PAGE) * PAGE + t % PAGE
    }

    /// An input tensor of noise.
    pub fn input(&mut self, name: &str, shape: [usize; 2]) -> Tensor {
        let values = self.noise(shape[0] * shape[1]);
        let tensor = self.plan.tensor(name, shape);
        self.fill(&tensor, &values);
        tensor
    }

    /// Sets a tensor's first content. Padding is zero, as in the engine.
    pub fn fill(&mut self, tensor: &Tensor, values: &[f32]) {
        let BufferRef::Local(local) = tensor.buffer else { return };
        let length = tensor.stride * tensor.shape[1] + GROUP;
        let mut padded = vec![0f32; length];
        for (vector, values) in values.chunks(tensor.shape[0]).enumerate() {
            padded[vector * tensor.stride..][..values.len()].copy_from_slice(values);
        }
        self.locals.push((local, bytemuck::cast_slice(&padded).to_vec()));
    }

    /// Sets a buffer's first bytes.
    pub fn fill_bytes(&mut self, buffer: BufferRef, bytes: Vec<u8>) {
        if let BufferRef::Local(local) = buffer {
            self.locals.push((local, bytes));
        }
    }

    /// A stack of matrices of noise in a format.
    ///
    /// # Errors
    /// [`Error::Shape`] if the rows are not whole blocks.
    pub fn weight(&mut self, name: &str, quant: &'static Quant, shape: [usize; 3]) -> Result<Weight> {
        let [columns, rows, matrices] = shape;
        let seed = u64::from(self.rng.next_u32());
        let row_bytes = quant.row_bytes(columns).ok_or_else(|| broken_row(name, columns))?;
        let file = quant.sample(columns * rows * matrices, seed);
        let file = &file[..row_bytes * rows * matrices];
        let weight = self.plan.weight(name, quant, shape);
        self.weights.push((weight.id, lay_out(&weight, file)?, file.to_vec()));
        if let Some(grid) = quant.grid() {
            let table = self.plan.grid(grid.buffer);
            self.weights.push((table.id, lay_out(&table, grid.buffer.bytes())?, grid.buffer.bytes().to_vec()));
        }
        Ok(weight)
    }

    /// A vector of noise around 1, like the weights of norms.
    ///
    /// # Errors
    /// As [`CaseBuilder::vector_of`].
    pub fn vector(&mut self, name: &str, count: usize) -> Result<Weight> {
        let values: Vec<f32> = self.noise(count).into_iter().map(|v| 1.0 + 0.5 * v).collect();
        self.vector_of(name, &values)
    }

    /// A vector of these values.
    ///
    /// # Errors
    /// None: f32 values are whole blocks.
    pub fn vector_of(&mut self, name: &str, values: &[f32]) -> Result<Weight> {
        let weight = self.plan.weight(name, &quant::F32, [values.len(), 1, 1]);
        let file: &[u8] = bytemuck::cast_slice(values);
        self.weights.push((weight.id, lay_out(&weight, file)?, file.to_vec()));
        Ok(weight)
    }

    /// Lets an intermediate step write anything to a buffer.
    pub fn allow(&mut self, buffer: BufferRef) {
        self.free.push(buffer);
    }

    /// Lets the steps write anything to every buffer that has no content yet, except to `outputs`. It starts with
    /// zeros, as in the engine.
    pub fn allow_between(&mut self, outputs: &[BufferRef]) {
        for (id, local) in self.plan.locals().skip(Plan::SAMPLING.index() + 1) {
            let buffer = BufferRef::Local(id);
            if !outputs.contains(&buffer) && !self.locals.iter().any(|known| known.0 == id) {
                self.free.push(buffer);
                self.locals.push((id, vec![0; (local.bytes - self.plan.guard()) as usize]));
            }
        }
    }

    /// The case.
    pub fn finish(self, name: impl Into<String>) -> Case {
        let mut name: String = name.into();
        if let Some(tiling) = self.plan.target().choices.tilings.first() {
            name.push_str(&format!(", {}", tiling.choice));
        }
        let plan = self.plan.finish();
        let blank = |bytes: u64| bytemuck::cast_slice(&vec![UNTOUCHED; bytes.div_ceil(4) as usize]).to_vec();
        let mut locals: Vec<Vec<u8>> = plan.locals.iter().map(|l| blank(l.bytes)).collect();
        for (id, bytes) in self.locals {
            locals[id.index()][..bytes.len()].copy_from_slice(&bytes);
        }
        let splits = offset_of!(BatchHeader, splits);
        locals[Plan::BATCH.index()][splits..splits + 4].copy_from_slice(&(plan.splits as u32).to_le_bytes());
        let mut weights: Vec<Vec<u8>> = plan.weights.iter().map(|w| blank(w.bytes())).collect();
        let mut files = vec![Vec::new(); weights.len()];
        for (id, bytes, file) in self.weights {
            weights[id.index()][..bytes.len()].copy_from_slice(&bytes);
            files[id.index()] = file;
        }
        Case { name, plan, locals, weights, files, free: self.free, factor: 1.0, first: OnceLock::new() }
    }
}

fn broken_row(name: &str, columns: usize) -> Error {
    let want = "whole blocks".to_owned();
    Error::Shape { op: "case", tensor: name.to_owned(), got: format!("rows of {columns}"), want }
}

/// A weight's buffer, from rows as in a file.
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

impl CaseBuilder {
    /// Sets the batch: `count` tokens from `position`.
    pub(super) fn consecutive(&mut self, position: u32, count: usize) {
        self.rows(&RowHeader::consecutive(position as usize, &vec![0; count]));
    }

    /// Vectors of noise for `count` tokens in a batch of up to `tokens`.
    pub(super) fn batch(&mut self, name: &str, shape: [usize; 2], tokens: usize, count: usize) -> Tensor {
        let values = self.noise(shape[0] * shape[1] * count);
        self.batch_of(name, shape, tokens, &values)
    }

    /// A batch with these values in its first tokens, given without padding.
    pub(super) fn batch_of(&mut self, name: &str, shape: [usize; 2], tokens: usize, values: &[f32]) -> Tensor {
        let batch = self.plan.tensor(name, [shape[0], shape[1] * tokens]);
        self.fill_first(&batch, values);
        batch
    }

    /// Sets the first vectors of a tensor. Their padding is zero.
    pub(super) fn fill_first(&mut self, tensor: &Tensor, values: &[f32]) {
        let mut padded = vec![0f32; values.len() / tensor.shape[0] * tensor.stride];
        for (vector, values) in values.chunks(tensor.shape[0]).enumerate() {
            padded[vector * tensor.stride..][..tensor.shape[0]].copy_from_slice(values);
        }
        self.fill_bytes(tensor.buffer, bytemuck::cast_slice(&padded).to_vec());
    }

    /// Vectors of noise as a product's input.
    pub(super) fn plain_input(&mut self, name: &str, shape: [usize; 2]) -> Input {
        Input::from(&self.input(name, shape))
    }

    /// Vectors of noise with a norm that the product must apply.
    pub(super) fn normed_input(&mut self, name: &str, shape: [usize; 2]) -> Result<Input> {
        let tensor = self.input(name, shape);
        let norm = self.norm(&format!("{name}.norm"), shape[0])?;
        Ok(Input { tensor, norm: Some(norm), rounded: None })
    }

    /// The same, with the values also rounded to bytes as a previous step does it.
    pub(super) fn normed_rounded_input(&mut self, name: &str, shape: [usize; 2]) -> Result<Input> {
        let (xs, ws) = (self.noise(shape[0] * shape[1]), self.noise(shape[0]));
        let ws: Vec<f32> = ws.into_iter().map(|v| 1.0 + 0.5 * v).collect();
        let tensor = self.plan.tensor(name, shape);
        self.fill(&tensor, &xs);
        let norm = Norm { weight: self.vector_of(&format!("{name}.norm"), &ws)?, epsilon: 1e-5 };
        let rounded = self.plan.rounded_for_norm("", &tensor, name);
        if let Some(rounded) = rounded {
            let mut words = vec![0; rounded.words];
            for (vector, values) in xs.chunks(shape[0]).enumerate() {
                let weighed: Vec<f32> = values.iter().zip(&ws).map(|(v, w)| v * w).collect();
                let groups: Vec<u32> = weighed.chunks(GROUP).flat_map(group_words).collect();
                words[vector * rounded.pitch..][..groups.len()].copy_from_slice(&groups);
                let squares = values.chunks(HALF).map(|half| half.iter().map(|v| v * v).sum::<f32>().to_bits());
                let places = words[rounded.squares_of(vector)..].iter_mut();
                places.zip(squares).for_each(|(place, square)| *place = square);
            }
            self.fill_bytes(rounded.buffer, bytemuck::cast_slice(&words).to_vec());
        }
        Ok(Input { tensor, norm: Some(norm), rounded })
    }

    /// A norm of vectors of `width` values.
    pub(super) fn norm(&mut self, name: &str, width: usize) -> Result<Norm> {
        Ok(Norm { weight: self.vector(name, width)?, epsilon: 1e-5 })
    }

    /// The ids of selected experts.
    pub(super) fn chosen(&mut self, name: &str, chosen: &[u32]) -> Tensor {
        let ids = self.plan.tensor(name, [chosen.len(), 1]);
        self.fill_bytes(ids.buffer, bytemuck::cast_slice(chosen).to_vec());
        ids
    }
}

impl CaseBuilder {
    /// If a step also wrote its output rounded to bytes, appends a product that reads the bytes: it reads sums of them
    /// too, which are not compared with a reference.
    pub(super) fn probe(&mut self, input: &Input) -> Result<()> {
        let Some(rounded) = input.rounded else { return Ok(()) };
        let Some(&quant) = QUANTS.iter().find(|quant| quant.family == Family::Affine) else { return Ok(()) };
        let [length, vectors] = input.tensor.shape;
        let columns = columns_for(quant, length); // zeros follow a vector
        let w = self.weight("probe", quant, [columns, 3, vectors])?;
        let padded = Input { tensor: Tensor { shape: [columns, vectors], ..input.tensor }, ..input.clone() };
        self.plan.mul_mv("probe", &w, &padded)?;
        self.fill_bytes(rounded.buffer, vec![0; 4 * rounded.words]); // as at first in the engine
        self.allow(rounded.buffer);
        Ok(())
    }

    /// As [`CaseBuilder::probe`], for a residual stream to which a norm is applied next.
    pub(super) fn probe_stream(&mut self, stream: &Residual, next: &Norm) -> Result<()> {
        let input = self.plan.normed("norm", stream, next)?;
        self.probe(&input)
    }

    /// Fills a tensor with values, given without padding, and returns it as a previous step would: also rounded to
    /// bytes, if the target's products read those.
    pub(super) fn rounded_input(&mut self, tensor: &Tensor, label: &str, values: &[f32]) -> Input {
        self.fill(tensor, values);
        let rounded = self.plan.rounded("", tensor, label);
        if let Some(rounded) = rounded {
            let vectors = values.chunks(tensor.shape[0]);
            let padded = vectors.flat_map(|v| v.iter().copied().chain((v.len()..tensor.stride).map(|_| 0.0)));
            let padded: Vec<f32> = padded.collect();
            let words: Vec<u32> = padded.chunks(GROUP).flat_map(group_words).collect();
            self.fill_bytes(rounded.buffer, bytemuck::cast_slice(&words).to_vec());
        }
        Input { tensor: *tensor, norm: None, rounded }
    }
}

/// The cosines and sines of `pairs` angles at a position, base 10000.
fn rotations(position: u32, pairs: usize) -> Vec<[f32; 2]> {
    let angle = |i: usize| position as f64 * 10000f64.powf(-(i as f64) / pairs as f64);
    (0..pairs).map(|i| [angle(i).cos() as f32, angle(i).sin() as f32]).collect()
}

/// A group of values rounded to bytes, as words with the layout that steps write on the GPU.
fn group_words(group: &[f32]) -> Vec<u32> {
    let mut words = vec![0; WORDS];
    for (side, half) in group.chunks(HALF).enumerate() {
        let top = half.iter().fold(0f32, |top, v| top.max(v.abs()));
        let (scale, inverse) = if top > 0.0 { (top / 127.0, 127.0 / top) } else { (0.0, 0.0) };
        let bytes: Vec<i8> = half.iter().map(|v| (v * inverse).round_ties_even() as i8).collect();
        for (word, four) in words[4 * side..].iter_mut().zip(bytes.chunks(4)) {
            *word = four.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte as u8));
        }
        let sum = scale * bytes.iter().map(|&byte| i32::from(byte)).sum::<i32>() as f32;
        (words[8 + side], words[10 + side]) = (scale.to_bits(), sum.to_bits());
    }
    words
}
