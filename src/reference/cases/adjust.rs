//! The cases of `adjust`.

use crate::error::Result;
use crate::kernels::{Adjustment, Penalties};
use crate::plan::{BufferRef, Target};
use crate::reference::sampling::adjusted_logits;
use crate::reference::{Case, CaseBuilder, OutputType};

/// Logits, adjustments, whether the newest token counts, and which it is: one that is listed, one that is not, the
/// last.
const SHAPES: [(usize, usize, u32, u32); 8] = [
    (1, 0, 0, 0),
    (1, 1, 1, 0),
    (300, 0, 1, 7),
    (300, 5, 1, 0),
    (300, 5, 1, 299),
    (5000, 700, 1, 699 * 7),
    (5000, 700, 0, 3),
    (154_880, 64, 1, 154_879),
];

pub(super) fn cases(target: Target) -> Result<Vec<Case>> {
    let case = |(count, listed, ahead, newest): (usize, usize, u32, u32), banned: Option<usize>| {
        let mut case = CaseBuilder::new(target, 1);
        let values: Vec<f32> = case.noise(count).iter().map(|value| 10.0 * value).collect();
        let biases = case.noise(listed);
        let entry = |(&bias, i): (&f32, usize)| {
            let bias = if Some(i) == banned {
                f32::NEG_INFINITY
            } else if i % 3 == 0 {
                0.0
            } else {
                4.0 * bias
            };
            Adjustment { token: (i * 7 % count) as u32, count: i as u32 % 4, bias }
        };
        let entries: Vec<Adjustment> = biases.iter().zip(0..).map(entry).collect();
        let penalties = Penalties { count: listed as u32, ahead, repeat: 1.3, presence: 0.7, frequency: -0.2 };
        let logits = case.plan.tensor("logits", [count, 1]);
        case.fill(&logits, &values);
        case.state(newest, 0, &[]);
        let local = case.plan.adjust("adjust", &logits, listed + 1)?;
        let bytes = [bytemuck::bytes_of(&penalties), bytemuck::cast_slice(&entries)].concat();
        case.fill_bytes(BufferRef::Local(local), bytes);
        let (after, sizes) = adjusted_logits(&values, &penalties, &entries, newest);
        let banned_token = banned.map_or(count, |i| entries[i].token as usize);
        for place in [0..banned_token, (banned_token + 1).min(count)..count] {
            let (after, sizes) = (after[place.clone()].to_vec(), sizes[place.clone()].to_vec());
            case.expect_slice(logits.buffer, place.start, after, sizes, 1e-6);
        }
        if banned_token < count {
            let bits = vec![f64::from(f32::NEG_INFINITY.to_bits())];
            case.expect_at(logits.buffer, OutputType::U32, banned_token, bits, 0.0);
        }
        Ok(case.finish(format!("{listed} of {count}, ahead {ahead} {newest}, banned {banned:?}")))
    };
    let plain = SHAPES.into_iter().map(|shape| case(shape, None));
    plain.chain([case(SHAPES[3], Some(2)), case(SHAPES[5], Some(699))]).collect()
}
