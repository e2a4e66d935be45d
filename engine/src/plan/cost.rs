//! The cost of a step: the bytes that it moves and the operations that it computes.
//!
//! Both are counted for a full batch, the way the kernels work: whole tiles, and a slot for every expert that a token
//! is routed to. An operation is a multiplication or an addition of a product or of attention; norms, exponentials and
//! the decoding of weights are not counted. A buffer that fits a GPU's cache ([`HELD`]) is read from memory once, a
//! larger one again by every set of workgroups that do not run at the same time.

use super::Weight;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Range};

/// The number of bytes that stay in a cache between two reads: the size of the system-level cache of Apple's chips from
/// the M1 to the M4. Larger chips have more.
const HELD: u64 = 8 << 20;

/// The minimum number of workgroups that a GPU runs at the same time. They read the same bytes at about the same time.
const BESIDE: usize = 16;

/// The cost of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes of weights.
    pub weights: u64,
    /// Bytes of the cache, for each token in it.
    pub cache: u64,
    /// Bytes of activations.
    pub activations: u64,
    /// Operations: two for a multiplication whose result is added to a sum.
    pub flops: u64,
    /// Further operations for each token in the cache.
    pub cache_flops: u64,
}

impl Cost {
    /// The cost of multiplying a vector of each of `tokens` tokens with `matrices` matrices, the same for all tokens.
    pub fn products(weight: &Weight, matrices: usize, tokens: usize) -> Self {
        let weights = read(weight.matrix_bytes() * matrices as u64, tokens);
        Self { weights, ..Self::of_slots(weight, matrices * tokens) }
    }

    /// The cost of `slots` vectors, each multiplied by a matrix that was selected for it.
    pub fn of_slots(weight: &Weight, slots: usize) -> Self {
        let values = weight.shape[0].saturating_mul(weight.shape[1]);
        let [flops, weights] =
            [(values as u64).saturating_mul(2), weight.matrix_bytes()].map(|each| each.saturating_mul(slots as u64));
        Self { weights, flops, ..Self::default() }
    }

    /// The cost of activations alone.
    pub fn of_activations(bytes: u64) -> Self {
        Self { activations: bytes, ..Self::default() }
    }

    /// The cost of some of `total` workgroups. The costs of all of them add up to the whole.
    pub fn share(&self, workgroups: Range<usize>, total: usize) -> Self {
        let below = |n: u64, end: usize| (u128::from(n) * end as u128 / total.max(1) as u128) as u64;
        let share = |n: u64| below(n, workgroups.end) - below(n, workgroups.start);
        Self {
            weights: share(self.weights),
            cache: share(self.cache),
            activations: share(self.activations),
            flops: share(self.flops),
            cache_flops: share(self.cache_flops),
        }
    }

    /// The bytes with `cached` tokens in the cache.
    pub fn bytes(&self, cached: u64) -> u64 {
        self.weights.saturating_add(self.cache.saturating_mul(cached)).saturating_add(self.activations)
    }

    /// The operations with `cached` tokens in the cache.
    pub fn operations(&self, cached: u64) -> u64 {
        self.flops.saturating_add(self.cache_flops.saturating_mul(cached))
    }
}

/// How often bytes are read from memory if all of this many workgroups read them.
pub fn readings(workgroups: usize) -> usize {
    workgroups.div_ceil(BESIDE)
}

/// The bytes that are read from memory if a buffer is read `times` times.
pub fn read(bytes: u64, times: usize) -> u64 {
    if bytes <= HELD { bytes } else { bytes.saturating_mul(times as u64) }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            weights: self.weights.saturating_add(other.weights),
            cache: self.cache.saturating_add(other.cache),
            activations: self.activations.saturating_add(other.activations),
            flops: self.flops.saturating_add(other.flops),
            cache_flops: self.cache_flops.saturating_add(other.cache_flops),
        }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), Self::add)
    }
}
