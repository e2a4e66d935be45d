//! How a token is chosen: what the kernels are told. `reference/sampling.rs` chooses in the same way on the CPU.
//!
//! The chain is llama.cpp's, as in [`sample`](crate::sample): top-k, top-p over what that left at temperature 1,
//! min-p, temperature, draw. All filters keep the first tokens of one order, by logit and then by id, so
//! together they are the place of the last token kept, which is found digit by digit: `slice_max` leaves the largest
//! logit, `histogram` the tokens in each quarter of a logit below it and what they weigh, and `sample` counts by a
//! further digit the tokens of the one bin in question, until a bin holds one token. Equal logits go by id, to the
//! last token of a tie, as on the host. Equal are logits within 2^-22 of each other, and those more than 256 below the
//! largest.
//!
//! The draw is the largest sum of log-probability and Gumbel noise over what is kept. The noise is a hash of seed,
//! position and id (`wgsl/lib/noise.wgsl`). What is summed in any order is integers; the rest has a fixed order. So a
//! seed decides, whatever was generated or rewound before. Only finite logits are chosen.

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
    /// The penalties on tokens that were there before. They are llama.cpp's.
    pub(crate) penalties: Penalties,
}

const _: () = assert!(size_of::<Sampling>() == SAMPLING_BYTES);

/// What happens to the logits of tokens that were there before.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::NoUninit, bytemuck::AnyBitPattern)]
pub struct Penalties {
    /// Divides logits above zero and multiplies others.
    pub repeat: f32,
    /// Taken off once.
    pub presence: f32,
    /// Taken off for each time.
    pub frequency: f32,
}

impl Penalties {
    /// Those that change nothing.
    pub const NONE: Self = Self { repeat: 1.0, presence: 0.0, frequency: 0.0 };
}

/// The largest Gumbel noise there is, less the smallest: a token further behind than that never wins.
const NOISE_RANGE: f64 = 28.0;

impl Sampling {
    /// Always the likeliest token.
    pub const GREEDY: Self =
        Self { seed: [0; 2], top_k: 1, top_p: 1.0, sharpness: 0.0, reach: 0.0, penalties: Penalties::NONE };

    /// A draw at a temperature above 0 from what the filters keep: `top_k` of 0 and `top_p` of 1 keep all, as does
    /// `min_p` of 0.
    pub fn draw(temperature: f32, top_k: usize, top_p: f32, min_p: f32, seed: u64) -> Self {
        let temperature = f64::from(temperature).max(1e-37); // 2 / temperature has to be finite
        let reach = (0.5 * NOISE_RANGE * temperature).min(-0.5 * f64::from(min_p).ln());
        Self {
            seed: [seed as u32, (seed >> 32) as u32],
            top_k: u32::try_from(top_k).ok().filter(|k| *k > 0).unwrap_or(u32::MAX),
            top_p,
            sharpness: (2.0 / temperature).max(f64::from(f32::MIN_POSITIVE)) as f32,
            reach: reach.min(f64::from(f32::MAX)) as f32,
            penalties: Penalties::NONE,
        }
    }

    /// As before, with penalties. Only the steps that adjust logits heed them.
    pub fn penalised(self, penalties: Penalties) -> Self {
        Self { penalties, ..self }
    }

    /// True if it takes a histogram to tell what the filters keep.
    pub fn filters(&self) -> bool {
        self.sharpness > 0.0 && (self.top_k < u32::MAX || self.top_p < 1.0)
    }
}

/// Four random words of four: `lib/noise.wgsl`.
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
