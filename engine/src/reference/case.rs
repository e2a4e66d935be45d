//! A case of a kernel: a small plan with seeded inputs, the outputs that the CPU reference computes for them, and the
//! comparison with a GPU's outputs.
//!
//! Every buffer of a case ends in a guard band. A case fails if the error of a value exceeds its bound, if a value is
//! NaN, or if the kernel changed anything other than the expected outputs: the padding between vectors, the guard band,
//! other buffers.

use super::kv_rows::IN_BLOCK;
use crate::kernels::kv_blocks::BlockRow;
use crate::plan::{BufferRef, LocalId, Plan};
use half::f16;
use std::ops::Range;

/// The size in bytes of the guard band at the end of a buffer.
pub(super) const GUARD_BYTES: u64 = 256;

/// The type of an output's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputType {
    /// f32 values.
    F32,
    /// f16 values, two to a word.
    F16,
    /// u32 values, compared exactly.
    U32,
    /// Values of the latents of KV rows in blocks, with indices as if the KV rows had nothing else.
    Block(BlockRow),
}

impl OutputType {
    /// The bytes of a value.
    pub fn bytes(self, place: usize) -> Range<usize> {
        let (at, size) = match self {
            Self::F16 => (2 * place, 2),
            Self::F32 | Self::U32 => (4 * place, 4),
            Self::Block(row) => (place / row.rank * row.bytes() + row.byte(place % row.rank), 1),
        };
        at..at + size
    }

    /// The further bytes that are written with a value: for one in a block, the word that contains its scale.
    fn besides(self, place: usize) -> Range<usize> {
        let Self::Block(row) = self else { return 0..0 };
        let at = (place / row.rank * row.bytes() + row.scale(place % row.rank)) / 4 * 4;
        at..at + 4
    }

    /// The largest error of rounding an exact value to the type: half the distance between neighbours. It is not an
    /// error of a kernel. `magnitude` is the largest of the values that share a scale. For f32 this is 0, because the
    /// bounds include the rounding of intermediate values anyway.
    fn half_step(self, value: f64, magnitude: f64) -> f64 {
        match self {
            Self::F32 | Self::U32 => 0.0,
            // 11 bits, fewer below 2^-14; a value just below a power of two may be rounded above it
            Self::F16 => (value.abs() * 1.001).log2().floor().max(-14.0).exp2() / 2048.0,
            // a byte counts 128ths of a scale of 128/127 of the largest magnitude
            Self::Block(_) => magnitude * IN_BLOCK,
        }
    }

    fn read(self, bytes: &[u8], place: usize) -> f64 {
        let at = self.bytes(place).start;
        match self {
            Self::Block(row) => {
                let scale = place / row.rank * row.bytes() + row.scale(place % row.rank);
                BlockRow::value(bytes[at], u16::from_le_bytes([bytes[scale], bytes[scale + 1]]))
            }
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

/// The expected final values of a buffer.
#[derive(Debug, Clone)]
pub struct Expected {
    /// The local buffer.
    pub local: LocalId,
    /// The type of its values.
    pub kind: OutputType,
    /// The indices of the values.
    pub places: Vec<usize>,
    /// The values from the CPU reference.
    pub values: Vec<f64>,
    /// The magnitude against which the error of each value is measured: the sum of the magnitudes that were added for
    /// it.
    pub magnitudes: Vec<f64>,
    /// The largest allowed error divided by the magnitude, in addition to that of rounding to the type of the output.
    pub bound: f64,
}

/// A computed value.
struct Judged {
    place: usize,
    got: f64,
    want: f64,
    /// The error, divided by the magnitude.
    error: f64,
}

impl Expected {
    /// The values in the content of the buffer, with their errors.
    fn judged<'a>(&'a self, content: &'a [u8]) -> impl Iterator<Item = Judged> + 'a {
        let values = self.places.iter().zip(&self.values).zip(&self.magnitudes);
        values.map(|((&place, &want), &magnitude)| {
            let got = self.kind.read(content, place);
            let off = if got == want { 0.0 } else { (got - want).abs() - self.kind.half_step(want, magnitude) };
            // NaN stays NaN
            let error = if off < 0.0 { 0.0 } else { off / magnitude.max(1e-30) };
            Judged { place, got, want, error }
        })
    }

    /// The largest error divided by the bound; infinite for NaN, or if a value that is compared exactly differs.
    pub fn share(&self, content: &[u8]) -> f64 {
        let share = |judged: Judged| match judged.error {
            0.0 => 0.0,
            error if error.is_nan() => f64::INFINITY,
            error => error / self.bound,
        };
        self.judged(content).map(share).fold(0.0, f64::max)
    }
}

/// A plan with its inputs and the outputs it should have.
pub struct Case {
    /// The shapes and formats.
    pub name: String,
    /// The plan: usually one step.
    pub plan: Plan,
    /// The first content of every local buffer.
    pub locals: Vec<Vec<u8>>,
    /// The content of every weight buffer.
    pub weights: Vec<Vec<u8>>,
    /// The rows of every weight, as in a model's file.
    pub files: Vec<Vec<u8>>,
    /// The outputs.
    pub expected: Vec<Expected>,
    /// Local buffers that steps may write freely, because they hold intermediate results.
    pub free: Vec<BufferRef>,
}

/// The result of a case.
#[derive(Debug, Clone)]
pub struct CaseOutcome {
    /// The error with the largest ratio to its bound, divided by its magnitude.
    pub worst: f64,
    /// That bound.
    pub bound: f64,
    /// What is wrong, if anything is.
    pub failure: Option<String>,
}

impl Case {
    /// Compares the final content of the local buffers with the expected values.
    pub fn judge(&self, finals: &[Vec<u8>]) -> CaseOutcome {
        let mut outcome =
            CaseOutcome { worst: 0.0, bound: self.expected.first().map_or(0.0, |e| e.bound), failure: None };
        for expected in &self.expected {
            self.judge_values(expected, &finals[expected.local.index()], &mut outcome);
        }
        for ((local, _), content) in self.plan.locals_by_id().zip(finals) {
            let touched = self.touched(local, content);
            outcome.failure = outcome.failure.or(touched);
        }
        outcome
    }

    fn judge_values(&self, expected: &Expected, content: &[u8], outcome: &mut CaseOutcome) {
        let share = |error: f64, bound: f64| error / bound.max(1e-30);
        for Judged { place, got, want, error } in expected.judged(content) {
            if share(error, expected.bound) > share(outcome.worst, outcome.bound) {
                (outcome.worst, outcome.bound) = (error, expected.bound);
            }
            let good = error <= expected.bound; // false for NaN
            if !good && outcome.failure.is_none() {
                let name = &self.plan.local(expected.local).name;
                outcome.failure = Some(format!("`{name}`[{place}] is {got}, expected {want}"));
            }
        }
    }

    /// Describes a byte of a buffer that changed although nothing was expected there.
    fn touched(&self, local: LocalId, content: &[u8]) -> Option<String> {
        let mut free = vec![false; content.len()];
        if self.free.contains(&BufferRef::Local(local)) {
            free[..content.len() - GUARD_BYTES as usize].fill(true);
        }
        for expected in self.expected.iter().filter(|e| e.local == local) {
            for &place in &expected.places {
                free[expected.kind.bytes(place)].fill(true);
                free[expected.kind.besides(place)].fill(true);
            }
        }
        let before = &self.locals[local.index()];
        let changed = |i: &usize| content[*i] != before[*i] && !free[*i];
        let at = (0..content.len()).find(changed)?;
        Some(format!("`{}` changed at byte {at}, where nothing should be written", self.plan.local(local).name))
    }
}
