//! The largest of each slice of the logits: the first step of choosing a token.

use super::case::ValueType;
use super::histogram::BINS;
use super::reference::Maxima;
use super::{Case, CaseBuilder, Kernel, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Target, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/slice_max.wgsl");
const WORKGROUP: usize = 256;
/// Logits of a slice: four for each invocation of a workgroup.
pub(super) const SLICE: usize = 4 * WORKGROUP;

params! { count: u32, bins: u32 }

pub(super) const KERNEL: Kernel =
    Kernel { name: "slice_max", op: OP, params: Params::FIELDS, matrices: &[], several: false, cases };

/// In the place of a token where no logit is a number.
pub const NO_TOKEN: u32 = u32::MAX;
/// The score that stands beside it.
const LOWEST: f32 = -3.4e38;

/// Logits cut into slices.
pub struct Slices {
    /// Of each slice the largest logit, as its bits, and its token; of equals the lowest token, [`NO_TOKEN`] if
    /// none is a number.
    pub maxima: Tensor,
    /// All zeros, for [`Builder::histogram`].
    pub histogram: Tensor,
}

impl Slices {
    /// How many.
    pub fn count(&self) -> usize {
        self.maxima.shape[0] / 2
    }
}

impl Builder {
    /// The slices of logits {n}.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn slice_max(&mut self, label: &str, logits: &Tensor) -> Result<Slices> {
        let count = logits.shape[0].div_ceil(SLICE);
        let (maxima, histogram) = (self.tensor(label, [2 * count, 1]), self.tensor("histogram", [2 * BINS, 1]));
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP).file(source!("lib/candidates.wgsl"));
        let bindings = vec![
            self.bound("logits", logits.buffer),
            self.bound("maxima", maxima.buffer),
            self.bound("histogram", histogram.buffer),
        ];
        let params = Params { count: logits.shape[0] as u32, bins: 2 * BINS as u32 };
        let cost = Cost::of_activations(logits.bytes() + maxima.bytes() + histogram.bytes());
        let slices = Slices { maxima, histogram };
        self.computes(KERNEL.name, Maxima::new(logits, &slices));
        self.step(label, variant, bindings, &params, [count, 1, 1], cost)?;
        Ok(slices)
    }
}

/// The largest logit and its token.
pub(super) fn likeliest(logits: &[f32]) -> (f32, u32) {
    let numbers = logits.iter().copied().zip(0..).filter(|(logit, _)| logit.is_finite());
    numbers.reduce(|best, other| if other.0 > best.0 { other } else { best }).unwrap_or((LOWEST, NO_TOKEN))
}

/// The words of the maxima.
fn expected(logits: &[f32]) -> Vec<f64> {
    let slices = logits.chunks(SLICE).zip((0..).step_by(SLICE));
    slices.flat_map(|(slice, first)| words(slice, first).map(f64::from)).collect()
}

/// The words of a slice's maximum, whose first logit is token `first`'s.
pub(super) fn words(slice: &[f32], first: usize) -> [u32; 2] {
    let (logit, token) = likeliest(slice);
    [logit.to_bits(), if token == NO_TOKEN { token } else { token + first as u32 }]
}

/// Makes a case out of noise.
pub(super) type Edit = fn(&mut [f32]);

/// What is special about the logits of a case, how many there are, and how noise becomes them.
pub(super) const EDGES: [(&str, usize, Edit); 9] = [
    ("one", 1, |_| {}),
    ("noise", 2048, |_| {}),
    ("a tie", 1000, |v| (v[17], v[900]) = (5.0, 5.0)),
    ("a tie across slices", 5000, |v| (v[1023], v[1024], v[4999]) = (5.0, 5.0, 5.0)),
    ("all below zero", 1025, |v| v.iter_mut().for_each(|v| *v -= 2.0)),
    ("the last", 154_880, |v| v[154_879] = 9.0),
    ("nothing", 300, |v| v.fill(f32::NAN)),
    ("a number among nothing", 3000, |v| {
        v.fill(f32::NAN);
        v[2047] = -1e30;
    }),
    ("infinities", 300, |v| (v[3], v[4], v[5]) = (f32::INFINITY, f32::NEG_INFINITY, 7.0)),
];

fn cases(target: Target) -> Result<Vec<Case>> {
    let case = |(name, count, edit): (&str, usize, Edit)| {
        let mut case = CaseBuilder::new(target, 1);
        let logits = case.plan.tensor("logits", [count, 1]);
        let mut values = case.noise(count);
        edit(&mut values);
        case.fill(&logits, &values);
        let slices = case.plan.slice_max("slices", &logits)?;
        case.expect_at(slices.maxima.buffer, ValueType::U32, 0, expected(&values), 0.0);
        case.expect_at(slices.histogram.buffer, ValueType::U32, 0, vec![0.0; 2 * BINS], 0.0);
        Ok(case.finish(format!("{name}, {count}")))
    };
    EDGES.into_iter().map(case).collect()
}
