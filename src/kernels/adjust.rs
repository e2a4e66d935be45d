//! Logit bias and penalties, before a token is chosen.

use super::case::ValueType;
use super::reference::Adjusted;
use super::{Case, CaseBuilder, Kernel, params};
use crate::error::Result;
use crate::plan::{BufferRef, Builder, Cost, Target, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/adjust.wgsl");
const WORKGROUP: usize = 256;

params! { count: u32 }

pub(super) const KERNEL: Kernel =
    Kernel { name: "adjust", op: OP, params: Params::FIELDS, matrices: &[], several: false, cases };

/// What is to happen to the logit of one token, as `wgsl/op/adjust.wgsl` reads it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::NoUninit, bytemuck::AnyBitPattern)]
pub struct Adjustment {
    /// The token; no other adjustment has it.
    pub token: u32,
    /// How often it stands among the last tokens: the penalties are for those with more than none.
    pub count: u32,
    /// Added before the penalties; minus infinity bans the token.
    pub bias: f32,
}

/// What the adjustments begin with. The penalties are llama.cpp's.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::NoUninit, bytemuck::AnyBitPattern)]
pub struct Penalties {
    /// Adjustments that follow.
    pub count: u32,
    /// 1 if the token being computed, which is in the plan's token buffer, counts once more than listed; else 0.
    pub ahead: u32,
    /// Divides logits above zero and multiplies others.
    pub repeat: f32,
    /// Taken off once.
    pub presence: f32,
    /// Taken off for each time.
    pub frequency: f32,
}

impl Builder {
    /// Adjusts logits {n} in place. Returns the local buffer that [`Penalties`] and up to `room` [`Adjustment`]s are to
    /// be written to, one after the other.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn adjust(&mut self, label: &str, logits: &Tensor, room: usize) -> Result<usize> {
        let bytes = size_of::<Penalties>() + room.max(1) * size_of::<Adjustment>();
        let adjustments = self.setting("adjustments", bytes as u64);
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP).file(source!("lib/candidates.wgsl"));
        let bindings = vec![
            self.bound("adjustments", BufferRef::Local(adjustments)),
            self.bound_token(),
            self.bound("logits", logits.buffer),
        ];
        let params = Params { count: logits.shape[0] as u32 };
        let cost = Cost::of_activations(bytes as u64 + 8 * room as u64);
        self.computes(KERNEL.name, Adjusted { logits: *logits, adjustments });
        self.step(label, variant, bindings, &params, [1, 1, 1], cost)?;
        Ok(adjustments)
    }
}

/// The logits afterwards, and what each of them was summed of.
pub(super) fn expected(
    logits: &[f32],
    penalties: &Penalties,
    listed: &[Adjustment],
    newest: u32,
) -> (Vec<f64>, Vec<f64>) {
    let [repeat, presence, frequency] = [penalties.repeat, penalties.presence, penalties.frequency].map(f64::from);
    let after = |(&logit, token): (&f32, u32)| {
        let entries = listed.iter().filter(|it| it.token == token);
        let (count, bias) = entries.fold((0, 0.0), |sum, it| (sum.0 + it.count, sum.1 + f64::from(it.bias)));
        let count = f64::from(count + u32::from(penalties.ahead == 1 && newest == token));
        let biased = f64::from(logit) + bias;
        let factor = if count == 0.0 {
            1.0
        } else if biased <= 0.0 {
            repeat
        } else {
            1.0 / repeat
        };
        let once = if count > 0.0 { presence } else { 0.0 };
        let parts = [f64::from(logit) * factor, bias * factor, -count * frequency, -once];
        (parts.iter().sum::<f64>(), parts.iter().map(|part| part.abs()).sum::<f64>())
    };
    logits.iter().zip(0..).map(after).unzip()
}

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

fn cases(target: Target) -> Result<Vec<Case>> {
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
        let (after, sizes) = expected(&values, &penalties, &entries, newest);
        let banned_token = banned.map_or(count, |i| entries[i].token as usize);
        for place in [0..banned_token, (banned_token + 1).min(count)..count] {
            let (after, sizes) = (after[place.clone()].to_vec(), sizes[place.clone()].to_vec());
            case.expect_slice(logits.buffer, place.start, after, sizes, 1e-6);
        }
        if banned_token < count {
            let bits = vec![f64::from(f32::NEG_INFINITY.to_bits())];
            case.expect_at(logits.buffer, ValueType::U32, banned_token, bits, 0.0);
        }
        Ok(case.finish(format!("{listed} of {count}, ahead {ahead} {newest}, banned {banned:?}")))
    };
    let plain = SHAPES.into_iter().map(|shape| case(shape, None));
    plain.chain([case(SHAPES[3], Some(2)), case(SHAPES[5], Some(699))]).collect()
}
