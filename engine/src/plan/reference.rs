//! What a step computes, stated independently of its shader. With it the CPU recomputes outputs from the step's inputs:
//! some of them, to check the kernels on an adapter on which a plan runs for the first time, or all of them, in the
//! kernels' cases.

use super::{BatchHeader, BufferRef, LocalId, PAGE, Plan, RowHeader, Weight, row_bytes};
use crate::error::Result;
use half::f16;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::ops::Range;

/// The factor on the bounds of a check that computes only some outputs, which is one of a model: its values are less
/// even than noise, and one term may outweigh all others of a sum.
pub const SLACK: f64 = 4.0;

/// What a step computes. The parts of a split step share one `Reference`, which is valid once all of them are done.
pub trait Reference: Send + Sync {
    /// Picks outputs, as the probe says, and computes what they should be from the step's inputs before it runs. A
    /// probe that picks all of them gets everything that the step writes.
    ///
    /// # Errors
    /// The errors of reading the inputs.
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>>;
}

impl std::fmt::Debug for dyn Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reference")
    }
}

/// For a step that computes two things: the samples of both.
impl<A: Reference, B: Reference> Reference for (A, B) {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let mut samples = self.0.samples(probe)?;
        samples.extend(self.1.samples(probe)?);
        Ok(samples)
    }
}

/// For a step that may not compute something: no samples.
impl<T: Reference> Reference for Option<T> {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        self.as_ref().map_or(Ok(Vec::new()), |what| what.samples(probe))
    }
}

/// One output of a step.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Where the output is.
    pub output: OutputPlace,
    /// The expected value.
    pub want: f64,
    /// The largest allowed error of the kernel.
    pub tolerance: f64,
    /// The largest error of storing values in the types that the plan gives them, such as f16 and bytes. It does not
    /// count as an error of the kernel.
    pub rounding: f64,
    /// The magnitude that errors are relative to: usually the sum of the magnitudes that were added.
    pub size: f64,
}

/// Where an output is, and how its value is stored. An index counts values from the start of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputPlace {
    /// An f32.
    F32(BufferRef, usize),
    /// An f16, two to a word.
    F16(BufferRef, usize),
    /// A u32.
    U32(BufferRef, usize),
    /// The index of a signed byte, four to a word, and the index of the f32 that it is multiplied by.
    Scaled(BufferRef, usize, usize),
    /// The index of a byte, where 128 means zero and 0 means -1, and the index of the f16 that it is multiplied by.
    Block(BufferRef, usize, usize),
    /// The index of a sum and, in another buffer, the index of the sum of weights that divides it. Both are f32.
    Mean([BufferRef; 2], [usize; 2]),
    /// The index of an f32, to which the logarithm of the next one is added.
    LogSum(BufferRef, usize),
}

impl OutputPlace {
    /// The bytes that the value is computed from: a part of a word each. The scale of a block is written in whole
    /// words.
    pub fn bytes(self) -> Vec<(BufferRef, Range<usize>)> {
        let word = |place: usize| 4 * place..4 * place + 4;
        match self {
            Self::F32(buffer, place) | Self::U32(buffer, place) => vec![(buffer, word(place))],
            Self::F16(buffer, place) => vec![(buffer, 2 * place..2 * place + 2)],
            Self::Scaled(buffer, byte, scale) => vec![(buffer, byte..byte + 1), (buffer, word(scale))],
            Self::Block(buffer, byte, scale) => vec![(buffer, byte..byte + 1), (buffer, word(scale / 2))],
            Self::Mean([sums, weights], [sum, weight]) => vec![(sums, word(sum)), (weights, word(weight))],
            Self::LogSum(buffer, place) => vec![(buffer, word(place)), (buffer, word(place + 1))],
        }
    }

    /// The words that the value is computed from.
    pub fn words(self) -> Vec<(BufferRef, usize)> {
        self.bytes().into_iter().map(|(buffer, bytes)| (buffer, bytes.start / 4)).collect()
    }

    /// The value, computed from these words; NaN if there are too few.
    pub fn value(self, words: &[u32]) -> f64 {
        let float = |word: &u32| f64::from(f32::from_bits(*word));
        match (self, words) {
            (Self::F32(..), [word]) => float(word),
            (Self::U32(..), [word]) => f64::from(*word),
            (Self::F16(_, place), [word]) => f16::from_bits((word >> (16 * (place % 2))) as u16).to_f64(),
            (Self::Scaled(_, byte, _), [four, scale]) => {
                f64::from((four >> (8 * (byte % 4))) as u8 as i8) * float(scale)
            }
            (Self::Block(_, byte, scale), [four, two]) => {
                let part = f64::from((four >> (8 * (byte % 4))) as u8) / 128.0 - 1.0;
                part * f16::from_bits((two >> (16 * (scale % 2))) as u16).to_f64()
            }
            (Self::Mean(..), [sum, weight]) => float(sum) / float(weight),
            (Self::LogSum(..), [top, total]) => float(top) + float(total).ln(),
            _ => f64::NAN,
        }
    }

    /// The buffer and the index that a message names.
    pub fn place(self) -> (BufferRef, usize) {
        match self {
            Self::F32(buffer, place) | Self::F16(buffer, place) | Self::U32(buffer, place) => (buffer, place),
            Self::Scaled(buffer, place, _) | Self::Block(buffer, place, _) | Self::LogSum(buffer, place) => {
                (buffer, place)
            }
            Self::Mean([buffer, _], [place, _]) => (buffer, place),
        }
    }
}

impl Sample {
    /// The error of an output beyond rounding; NaN if the output is.
    pub fn error(&self, got: f64) -> f64 {
        let off = if got == self.want { 0.0 } else { (got - self.want).abs() - self.rounding };
        if off < 0.0 { 0.0 } else { off }
    }

    /// Whether the output has the expected value. If that is beyond f32, any output is accepted.
    pub fn agrees(&self, got: f64) -> bool {
        let beyond = self.want.is_nan() || self.want.abs() > f64::from(f32::MAX);
        beyond || self.error(got) <= self.tolerance // false for NaN
    }
}

/// Reads the contents of buffers and weights.
pub trait PlanContents {
    /// Some words of a local buffer.
    ///
    /// # Errors
    /// Any error from the device.
    fn words(&mut self, local: LocalId, first: usize, count: usize) -> Result<Vec<u32>>;

    /// The values of a row of a weight, decoded from the model's file. Rows are counted over all matrices of the
    /// weight.
    ///
    /// # Errors
    /// The errors of decoding them.
    fn row(&mut self, weight: &Weight, row: usize) -> Result<Vec<f32>>;
}

/// Gives a [`Reference`] the contents of buffers and weights, and picks outputs.
pub struct Probe<'a> {
    plan: &'a Plan,
    memory: &'a mut dyn PlanContents,
    /// `None` if it picks all outputs.
    random: Option<Pcg32>,
    /// The position of the first token.
    pub position: usize,
    /// The number of tokens.
    pub count: usize,
}

impl<'a> Probe<'a> {
    /// A probe of some outputs of a step for a number of tokens from a position. `seed` decides which outputs are
    /// picked.
    pub fn new(plan: &'a Plan, memory: &'a mut dyn PlanContents, (position, count): (usize, usize), seed: u64) -> Self {
        Self { random: Some(Pcg32::seed_from_u64(seed)), ..Self::of_all(plan, memory, (position, count)) }
    }

    /// A probe of all outputs of a step, which must be within the bounds of the kernels.
    pub fn of_all(plan: &'a Plan, memory: &'a mut dyn PlanContents, (position, count): (usize, usize)) -> Self {
        Self { plan, memory, random: None, position, count }
    }

    /// Whether it picks all outputs.
    pub fn picks_all(&self) -> bool {
        self.random.is_none()
    }

    /// The factor on the bounds of the kernels.
    pub fn slack(&self) -> f64 {
        if self.picks_all() { 1.0 } else { SLACK }
    }

    /// `most` different random numbers below `count`, or all of them if there are fewer or all outputs are picked.
    pub fn some(&mut self, count: usize, most: usize) -> Vec<usize> {
        match &mut self.random {
            Some(random) if count > most => {
                let picked: BTreeSet<usize> = (0..most).map(|_| random.next_u64() as usize % count).collect();
                picked.into_iter().collect()
            }
            _ => (0..count).collect(),
        }
    }

    /// Words of a local buffer.
    ///
    /// # Errors
    /// Any error from the device.
    pub fn words(&mut self, buffer: BufferRef, first: usize, count: usize) -> Result<Vec<u32>> {
        self.memory.words(buffer.local()?, first, count)
    }

    /// f32 values of a local buffer.
    ///
    /// # Errors
    /// Any error from the device.
    pub fn values(&mut self, buffer: BufferRef, first: usize, count: usize) -> Result<Vec<f32>> {
        Ok(self.words(buffer, first, count)?.into_iter().map(f32::from_bits).collect())
    }

    /// The values of a row of matrix `matrix` of a weight.
    ///
    /// # Errors
    /// The errors of decoding it.
    pub fn row(&mut self, weight: &Weight, matrix: usize, row: usize) -> Result<Vec<f32>> {
        self.memory.row(weight, matrix * weight.shape[1] + row)
    }

    /// The index in the pool of the KV row at position `t` of the sequence whose list of pages begins at `first_page`.
    ///
    /// # Errors
    /// Any error from the device.
    pub fn kv_index(&mut self, first_page: usize, t: usize) -> Result<usize> {
        let listed = self.words(BufferRef::Local(Plan::PAGES), first_page + t / PAGE, 1)?;
        let page = listed.first().map_or(0, |page| *page as usize);
        Ok(page * PAGE + t % PAGE)
    }

    /// The size in bytes of a row of a batch.
    pub fn row_bytes(&self) -> usize {
        row_bytes(self.plan.pairs)
    }

    /// The header of a row.
    ///
    /// # Errors
    /// Any error from the device.
    pub fn row_header(&mut self, row: usize) -> Result<RowHeader> {
        let place = (size_of::<BatchHeader>() + row * self.row_bytes()) / 4;
        let words = self.words(BufferRef::Local(Plan::BATCH), place, size_of::<RowHeader>() / 4)?;
        Ok(bytemuck::try_pod_read_unaligned(bytemuck::cast_slice(&words)).unwrap_or_default())
    }

    /// The id of a row's token.
    ///
    /// # Errors
    /// Any error from the device.
    pub fn token(&mut self, row: &RowHeader) -> Result<u32> {
        let Some(word) = row.token.checked_sub(RowHeader::SAMPLED) else { return Ok(row.token) };
        let sampled = self.words(BufferRef::Local(Plan::SAMPLED), word as usize, 1)?;
        Ok(sampled.first().copied().unwrap_or(row.token))
    }

    /// The cosine and the sine of each of the rotary angles of a row.
    ///
    /// # Errors
    /// Any error from the device.
    pub fn rotations(&mut self, token: usize) -> Result<Vec<[f32; 2]>> {
        let row = size_of::<BatchHeader>() + token * self.row_bytes() + size_of::<RowHeader>();
        let values = self.values(BufferRef::Local(Plan::BATCH), row / 4, 2 * self.plan.pairs)?;
        Ok(values.chunks_exact(2).map(|rotation| [rotation[0], rotation[1]]).collect())
    }
}
