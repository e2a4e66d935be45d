//! The kernels: one file each, with the same stem as its file under `wgsl/op/`.
//!
//! A kernel's file holds its parameters, the checks of its shapes, its grid, the bytes it moves, and the
//! [`Builder`](crate::plan::Builder) method that appends it to a plan. That method also records what the step computes,
//! as one of the structs in `computes`. Every kernel is an entry of [`KERNELS`]; tests, benches and the self-test
//! iterate over that list. The module `reference`, which comes after this one, computes the expected results.

mod absorb_query;
mod accept;
mod adjust;
mod advance;
pub(crate) mod computes;
pub(crate) mod copy;
mod draft;
mod draft_input;
pub(crate) mod errors;
pub(crate) mod expand_kv;
mod expand_kv_matrix;
mod experts_mm;
mod gate_up;
mod get_rows;
mod group_slots;
pub(crate) mod histogram;
pub(crate) mod keep_hidden;
mod kept_hidden;
pub(crate) mod kv_blocks;
mod kv_write;
mod last_token;
mod mask_logits;
pub(crate) mod matmul;
pub(crate) mod matvec;
pub(crate) mod mla_attention;
mod mla_attention_batch;
pub(crate) mod mla_attention_batch_matrix;
pub(crate) mod mla_attention_expanded;
pub(crate) mod mla_attention_matrix;
pub(crate) mod mla_attention_matrix8;
mod mla_merge;
pub(crate) mod mla_output;
mod moe_combine;
mod moe_down;
mod moe_gate_up;
mod moe_gate_up_grouped;
mod mul_mm;
pub(crate) mod mul_mm_matrix;
pub(crate) mod mul_mv;
mod mul_mv_pair;
mod mul_mv_places;
mod ops;
mod places;
mod query_up_kv_write;
mod rms_norm;
mod rms_norm_rounded;
mod rope_query;
pub(crate) mod rounded;
mod route;
mod sample;
pub(crate) mod sampling;
pub(crate) mod slice_max;
pub(crate) mod sum_normed;
pub(crate) mod sum_parts;
mod tiling;
pub(crate) mod weight_sum;

pub use accept::{DRAFTING, MAX_DRAFTS, VERIFIED_ROWS};
pub use adjust::Adjustment;
pub use computes::Kept;
pub use draft_input::HiddenStates;
pub use expand_kv::LatentWeights;
pub use experts_mm::ExpertWeights;
pub use group_slots::Groups;
pub use keep_hidden::KEPT_ROWS;
pub use kv_write::{Cache, CacheType};
pub use mask_logits::mask_words;
pub use matvec::{Input, Norm};
pub use mla_attention::{AttentionSplits, splits};
pub use mla_attention_batch::BatchAttention;
pub(crate) use mla_attention_batch::batch_splits;
pub use moe_gate_up::{GateUp, Hidden, Router, Selection};
pub use rounded::{Residual, Rounded};
pub use route::{ExpertGroups, Gating, Routed, Routing};
pub use sampling::{Penalties, Sampling};
pub use slice_max::{NO_TOKEN, Slices};
pub use sum_normed::Slots;
pub use sum_parts::Summands;
pub(crate) use weight_sum::{TILE as SUM_TILE, factors as sum_factors};

use crate::error::{Error, Result};
use crate::gpu::Matrices;
use crate::plan::Step;
use crate::wgsl::Source;
use std::fmt::Display;

/// A kernel of the registry.
pub struct Kernel {
    /// Its name, the stem of its files.
    pub name: &'static str,
    /// Its own WGSL file.
    pub op: Source,
    /// The fields of its parameters: name, first byte, bytes.
    pub params: &'static [(&'static str, usize, usize)],
    /// The sizes of cooperative matrices that it can run with; empty if it uses none.
    pub matrices: &'static [Matrices],
}

impl Kernel {
    /// The kernel of a step.
    pub fn of(step: &Step) -> Option<&'static Self> {
        KERNELS.iter().copied().find(|kernel| kernel.name == step.kernel)
    }

    /// Whether it runs on an adapter with these matrices.
    pub fn runs_with(&self, matrices: Matrices) -> bool {
        self.matrices.is_empty() || self.matrices.contains(&matrices)
    }
}

/// All kernels.
pub static KERNELS: &[&Kernel] = &[
    &get_rows::KERNEL,
    &rms_norm::KERNEL,
    &rms_norm_rounded::KERNEL,
    &mul_mm::KERNEL,
    &mul_mm_matrix::KERNEL,
    &sum_parts::KERNEL,
    &sum_normed::KERNEL,
    &group_slots::KERNEL,
    &moe_combine::KERNEL,
    &mul_mv::KERNEL,
    &mul_mv_places::KERNEL,
    &gate_up::KERNEL,
    &rope_query::KERNEL,
    &kv_write::KERNEL,
    &mla_attention::KERNEL,
    &mla_attention_matrix::KERNEL,
    &mla_attention_matrix8::KERNEL,
    &mla_attention_batch::KERNEL,
    &mla_attention_batch_matrix::KERNEL,
    &expand_kv::KERNEL,
    &expand_kv_matrix::KERNEL,
    &mla_attention_expanded::KERNEL,
    &mla_merge::KERNEL,
    &route::KERNEL,
    &mul_mv_pair::KERNEL,
    &query_up_kv_write::KERNEL,
    &absorb_query::KERNEL,
    &mla_output::KERNEL,
    &moe_gate_up::KERNEL,
    &moe_gate_up_grouped::KERNEL,
    &moe_down::KERNEL,
    &mask_logits::KERNEL,
    &adjust::KERNEL,
    &slice_max::KERNEL,
    &histogram::KERNEL,
    &sample::KERNEL,
    &accept::KERNEL,
    &advance::KERNEL,
    &keep_hidden::KERNEL,
    &kept_hidden::KERNEL,
    &draft_input::KERNEL,
    &draft::KERNEL,
    &copy::KERNEL,
    &last_token::KERNEL,
    &weight_sum::KERNEL,
];

/// Declares a kernel's `Params`, laid out as the WGSL struct of the same fields.
macro_rules! params {
    ($($field:ident: $ty:ty),* $(,)?) => {
        #[repr(C)]
        #[derive(Clone, Copy, bytemuck::NoUninit)]
        struct Params {
            $($field: $ty),*
        }

        impl Params {
            const FIELDS: &'static [(&'static str, usize, usize)] =
                &[$((stringify!($field), std::mem::offset_of!(Params, $field), size_of::<$ty>())),*];
        }
    };
}
pub(crate) use params;

/// Fails unless the shapes agree.
fn expect_shape<T: PartialEq + Display>(op: &'static str, tensor: &str, got: T, want: T) -> Result<()> {
    if got == want {
        return Ok(());
    }
    Err(Error::Shape { op, tensor: tensor.to_owned(), got: got.to_string(), want: want.to_string() })
}

/// Fails if `count` is more than `most`.
fn expect_most(op: &'static str, tensor: &str, count: usize, most: usize) -> Result<()> {
    if count <= most {
        return Ok(());
    }
    Err(Error::Shape { op, tensor: tensor.to_owned(), got: count.to_string(), want: format!("at most {most}") })
}

/// Fails unless the kernel supports the cache's shape and type on the target.
fn expect_cache(op: &'static str, supported: bool) -> Result<()> {
    if supported {
        return Ok(());
    }
    let (got, want) = ("one that the kernel cannot use on this target".to_owned(), "a supported one".to_owned());
    Err(Error::Shape { op, tensor: "cache".to_owned(), got, want })
}

/// Fails unless `length`, a number of values, is a multiple of `unit`.
fn expect_multiple(op: &'static str, tensor: &str, length: usize, unit: usize) -> Result<()> {
    if length.is_multiple_of(unit) {
        return Ok(());
    }
    Err(Error::Shape { op, tensor: tensor.to_owned(), got: length.to_string(), want: format!("a multiple of {unit}") })
}
