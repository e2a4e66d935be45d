//! Logit bias and penalties, before a token is chosen.

use super::computes::Adjusted;
use super::{Kernel, params};
use crate::error::Result;
use crate::plan::{BufferRef, Builder, Cost, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/adjust.wgsl");
const WORKGROUP: usize = 256;

params! { count: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "adjust", op: OP, params: Params::FIELDS, matrices: &[] };

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
