//! How a token is chosen: the parameters of the kernels. `reference/sampling.rs` chooses in the same way on the CPU.
//!
//! The chain is llama.cpp's, as in [`sample`](crate::sample): top-k, top-p over the remaining tokens at temperature 1,
//! min-p, temperature, draw. Every filter keeps the first tokens of one order, by logit and then by id, so together
//! they are the position of the last token that passes. It is found digit by digit: `slice_max` finds the largest
//! logit, `histogram` counts and weighs the tokens in each quarter of a logit below it, and `sample` counts the tokens
//! of the bin in question by a further digit, until a bin has one token. Equal logits are ordered by id, to the last
//! token of a tie, as on the host. Logits are equal if they are within 2^-22 of each other, or more than 256 below the
//! largest.
//!
//! The draw is the token with the largest sum of log-probability and Gumbel noise among those that pass. The noise is a
//! hash of seed, position and id (`wgsl/lib/noise.wgsl`). Sums without a fixed order are of integers. So a seed
//! determines the token, whatever was generated or rewound before. Only finite logits are chosen.

use crate::plan::SAMPLING_BYTES;

/// How tokens of a sequence are sampled, as `wgsl/lib/sampling.wgsl` reads it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::NoUninit, bytemuck::AnyBitPattern)]
pub struct Sampling {
    pub(crate) seed: [u32; 2],
    pub(crate) top_k: u32,
    pub(crate) top_p: f32,
    pub(crate) sharpness: f32,
    pub(crate) reach: f32,
    /// The penalties on tokens that occurred before. They are llama.cpp's.
    pub(crate) penalties: Penalties,
}

const _: () = assert!(size_of::<Sampling>() == SAMPLING_BYTES);

/// The penalties on the logits of tokens that occurred before.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::NoUninit, bytemuck::AnyBitPattern)]
pub struct Penalties {
    /// Divides logits above zero and multiplies the others.
    pub repeat: f32,
    /// Subtracted once.
    pub presence: f32,
    /// Subtracted for each occurrence.
    pub frequency: f32,
}

impl Penalties {
    /// Penalties that change nothing.
    pub const NONE: Self = Self { repeat: 1.0, presence: 0.0, frequency: 0.0 };
}

/// The largest possible Gumbel noise minus the smallest: a token further below the best never wins.
const NOISE_RANGE: f64 = 28.0;

impl Sampling {
    /// Always the likeliest token.
    pub const GREEDY: Self =
        Self { seed: [0; 2], top_k: 1, top_p: 1.0, sharpness: 0.0, reach: 0.0, penalties: Penalties::NONE };

    /// A draw at a temperature above 0 among the tokens that pass the filters. `top_k` of 0, `top_p` of 1 and `min_p`
    /// of 0 pass all.
    pub fn draw(temperature: f32, top_k: usize, top_p: f32, min_p: f32, seed: u64) -> Self {
        let temperature = f64::from(temperature).max(1e-37); // 2 / temperature must be finite
        let reach = (0.5 * NOISE_RANGE * temperature).min(-0.5 * f64::from(min_p).ln());
        Self {
            seed: [seed as u32, (seed >> 32) as u32],
            top_k: u32::try_from(top_k).ok().filter(|k| *k > 0).unwrap_or(u32::MAX),
            top_p,
            sharpness: (2.0 / temperature).max(f64::from(f32::MIN_POSITIVE)) as f32,
            // With `min_p` of 1 this would be 0, but the filters cannot distinguish gaps below EPSILON: the only token
            // that they keep may lie that far below the best.
            reach: reach.clamp(f64::from(f32::EPSILON), f64::from(f32::MAX)) as f32,
            penalties: Penalties::NONE,
        }
    }

    /// The same with penalties, which only the steps that adjust logits use.
    pub fn penalised(self, penalties: Penalties) -> Self {
        Self { penalties, ..self }
    }

    /// Whether the filters need a histogram.
    pub fn filters(&self) -> bool {
        self.sharpness > 0.0 && (self.top_k < u32::MAX || self.top_p < 1.0)
    }
}

/// Hashes four words to four random ones: `lib/noise.wgsl`.
pub(crate) fn pcg4d(key: [u32; 4]) -> [u32; 4] {
    let mix = |[x, y, z, w]: [u32; 4]| {
        let x = x.wrapping_add(y.wrapping_mul(w));
        let y = y.wrapping_add(z.wrapping_mul(x));
        let z = z.wrapping_add(x.wrapping_mul(y));
        [x, y, z, w.wrapping_add(y.wrapping_mul(z))]
    };
    let spread = key.map(|k| k.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    mix(mix(spread).map(|v| v ^ v >> 16))
}
