//! How a token is chosen: what the kernels are told, and their twin.
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

use super::slice_max::{NO_TOKEN, likeliest};

/// How a token is chosen, as `wgsl/op/sample.wgsl` reads it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::NoUninit, bytemuck::AnyBitPattern)]
pub struct Sampling {
    seed: [u32; 2],
    top_k: u32,
    top_p: f32,
    sharpness: f32,
    reach: f32,
}

/// The largest Gumbel noise there is, less the smallest: a token further behind than that never wins.
const NOISE_RANGE: f64 = 28.0;

impl Sampling {
    /// Always the likeliest token.
    pub const GREEDY: Self = Self { seed: [0; 2], top_k: 1, top_p: 1.0, sharpness: 0.0, reach: 0.0 };

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
        }
    }

    /// True if it takes a histogram to tell what the filters keep.
    pub fn filters(&self) -> bool {
        self.sharpness > 0.0 && (self.top_k < u32::MAX || self.top_p < 1.0)
    }
}

/// The words the kernels leave: the chosen token, the likeliest, and how many `top_k` and `top_p` left.
pub(super) fn choice(logits: &[f32], sampling: &Sampling, position: u32) -> [u32; 3] {
    let (_, first) = likeliest(logits);
    if first == NO_TOKEN || sampling.sharpness == 0.0 {
        return [first, first, 1];
    }
    let order = in_order(logits);
    let kept = sampling.kept(&order, sampling.top_p.into());
    let chosen = sampling.scores(&order[..kept], position).into_iter().fold((f64::NEG_INFINITY, first), best);
    let count = if sampling.filters() { kept } else { logits.len() };
    [chosen.1, first, count as u32]
}

/// As [`choice`], unless it is so close that rounding may decide it.
pub(super) fn clear_choice(logits: &[f32], sampling: &Sampling, position: u32) -> Option<[u32; 3]> {
    const CLOSE: f64 = 1e-3;
    let words = choice(logits, sampling, position);
    if words[0] == NO_TOKEN || sampling.sharpness == 0.0 {
        return Some(words);
    }
    let (order, top_p) = (in_order(logits), f64::from(sampling.top_p));
    let kept = sampling.kept(&order, top_p);
    let alike = [1.0 - CLOSE, 1.0 + CLOSE].iter().all(|factor| sampling.kept(&order, top_p * factor) == kept);
    let next = order.get(kept).map_or(f64::INFINITY, |(logit, _)| f64::from(order[kept - 1].0 - logit));
    let reach = |&(logit, _): &(f32, u32)| (0.5 * f64::from(order[0].0 - logit) - f64::from(sampling.reach)).abs();
    let scores = sampling.scores(&order[..kept], position);
    let ahead = |&(score, token): &(f64, u32)| token == words[0] || score < scores_of(&scores, words[0]) - CLOSE;
    let filters = !sampling.filters() || (top_p >= 1.0 || alike) && (next == 0.0 || next > CLOSE);
    (filters && order[..kept].iter().all(|it| reach(it) > CLOSE) && scores.iter().all(ahead)).then_some(words)
}

fn scores_of(scores: &[(f64, u32)], token: u32) -> f64 {
    scores.iter().find(|it| it.1 == token).map_or(f64::NEG_INFINITY, |it| it.0)
}

fn best(best: (f64, u32), other: (f64, u32)) -> (f64, u32) {
    if other.0 > best.0 { other } else { best }
}

/// Finite logits and their tokens, the largest first, equal ones by their tokens.
fn in_order(logits: &[f32]) -> Vec<(f32, u32)> {
    let mut order: Vec<(f32, u32)> = logits.iter().copied().zip(0..).filter(|(l, _)| l.is_finite()).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    order
}

impl Sampling {
    /// How many of the first tokens in order the filters keep, at a `top_p`.
    fn kept(&self, order: &[(f32, u32)], top_p: f64) -> usize {
        let order = if self.filters() { &order[..order.len().min(self.top_k as usize)] } else { order };
        if self.top_p >= 1.0 {
            return order.len();
        }
        let weight = |&(logit, _): &(f32, u32)| (f64::from(logit) - f64::from(order[0].0)).exp();
        let enough = top_p * order.iter().map(weight).sum::<f64>();
        let mut mass = 0.0;
        let before = |it: &&(f32, u32)| {
            let goes_on = mass < enough;
            mass += weight(it);
            goes_on
        };
        order.iter().take_while(before).count().max(1)
    }

    /// The scores of the first tokens in order, of which the largest is drawn.
    fn scores(&self, order: &[(f32, u32)], position: u32) -> Vec<(f64, u32)> {
        let score = |&(logit, token): &(f32, u32)| {
            let gap = 0.5 * (f64::from(order[0].0) - f64::from(logit));
            let score = gumbel(noise(self.seed, position, token)) - gap * f64::from(self.sharpness);
            (if gap <= f64::from(self.reach) { score } else { f64::NEG_INFINITY }, token)
        };
        order.iter().map(score).collect()
    }
}

/// The random word of a token: `lib/noise.wgsl`.
fn noise(seed: [u32; 2], position: u32, token: u32) -> u32 {
    pcg4d([token / 4, position, seed[0], seed[1]])[token as usize % 4]
}

/// Four random words of four: `lib/noise.wgsl`.
pub(super) fn pcg4d(key: [u32; 4]) -> [u32; 4] {
    let mix = |[x, y, z, w]: [u32; 4]| {
        let x = x.wrapping_add(y.wrapping_mul(w));
        let y = y.wrapping_add(z.wrapping_mul(x));
        let z = z.wrapping_add(x.wrapping_mul(y));
        [x, y, z, w.wrapping_add(y.wrapping_mul(z))]
    };
    let spread = key.map(|k| k.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    mix(mix(spread).map(|v| v ^ v >> 16))
}

/// Minus the logarithm of −log(1 − u), in f64.
fn gumbel(bits: u32) -> f64 {
    let u = (f64::from(bits) + 0.5) / 4_294_967_296.0;
    -(-(-u).ln_1p()).ln()
}
