//! Logit bias and penalties, before a token is chosen.

use super::computes::Adjusted;
use super::slice_max::candidate_files;
use super::{Kernel, params};
use crate::error::Result;
use crate::plan::{BufferRef, Builder, Cost, LocalId, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/adjust.wgsl");
const WORKGROUP: usize = 256;

params! { count: u32, pitch: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "adjust", op: OP, params: Params::FIELDS, matrices: &[] };

/// An adjustment of one token's logit, as `wgsl/op/adjust.wgsl` reads it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::NoUninit, bytemuck::AnyBitPattern)]
pub struct Adjustment {
    /// The token, which has no other adjustment in its row.
    pub token: u32,
    /// How often it occurs among the last tokens. Penalties apply if this is not 0.
    pub count: u32,
    /// Added before the penalties; minus infinity bans the token.
    pub bias: f32,
}

impl Builder {
    /// Adjusts logits {n, rows} in place, with the penalties of each row's sequence. Returns the local buffer to which
    /// the host writes up to `room` [`Adjustment`]s, row after row.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn adjust(&mut self, label: &str, logits: &Tensor, room: usize) -> Result<LocalId> {
        let bytes = room.max(1) * size_of::<Adjustment>();
        let adjustments = self.setting("adjustments", bytes as u64);
        let variant = self.token_files(VariantBuilder::new(KERNEL.name, OP, WORKGROUP));
        let variant = candidate_files(variant.file(source!("lib/sampling.wgsl")));
        let bindings = vec![
            self.bound_batch(),
            self.bound_sampled(),
            self.bound_sampling(),
            self.bound("adjustments", BufferRef::Local(adjustments)),
            self.bound("logits", logits.buffer),
        ];
        let params = Params { count: logits.shape[0] as u32, pitch: logits.stride as u32 };
        let cost = Cost::of_activations(bytes as u64 + 8 * room as u64);
        self.computes(KERNEL.name, Adjusted { logits: *logits, adjustments });
        self.step(label, variant, bindings, &params, [logits.shape[1], 1, 1], cost)?;
        Ok(adjustments)
    }
}
