//! Expands keys and values with cooperative matrices: products of f16, summed in f32.

use super::Kernel;
use super::errors::SUM;
use super::expand_kv::{Expanding, LatentWeights};
use super::kv_write::Cache;
use crate::gpu::Matrices;
use crate::plan::{Builder, PART_FIELDS, Target, Team, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/expand_kv_matrix.wgsl");
const WORKGROUP: usize = 128;
/// The number of KV rows of a tile, divided by the rows of a matrix.
const TOKENS: usize = 8;
/// The largest error: weights are rounded to f16, and latents too with a cache in blocks, which is within 2^-11.
const BOUND: f64 = 2.0 / 2048.0 + SUM;

pub(super) const KERNEL: Kernel =
    Kernel { name: "expand_kv_matrix", op: OP, params: PART_FIELDS, matrices: &[Matrices::Eight, Matrices::Sixteen] };

/// Whether the shapes consist of whole matrices of either size.
pub(super) fn whole(by: LatentWeights<'_>, cache: &Cache) -> bool {
    let whole = by.k_b.shape[0].is_multiple_of(32) && by.v_b.shape[1].is_multiple_of(16);
    // rotary keys are copied eight values at a time
    whole && cache.rank.is_multiple_of(64) && cache.rotary.is_multiple_of(8)
}

impl Builder {
    /// Whether the target has matrices that can expand the latents of a cache.
    pub(super) fn expands_by_matrices(&self, by: LatentWeights<'_>, cache: &Cache) -> bool {
        let Target { team, matrices, .. } = *self.target_for(KERNEL.name);
        matrices != Matrices::None && team == Team::Subgroup && whole(by, cache)
    }

    /// The kernel with these matrices.
    pub(super) fn expanding_by_matrices(&self, by: LatentWeights<'_>, cache: &Cache) -> Expanding {
        let (side, of_side) = match self.target_for(KERNEL.name).matrices {
            Matrices::Eight => (8, vec![source!("lib/matrix8.wgsl")]),
            _ => (16, vec![source!("lib/coop16.wgsl"), source!("lib/matrix16.wgsl")]),
        };
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP).matrices().constant("SIDE", "m", side);
        let variant = of_side
            .into_iter()
            .fold(variant, VariantBuilder::file)
            .file(source!("lib/chunks.wgsl"))
            .file(source!("lib/halves.wgsl"));
        let variant = cache.eights_files(variant).halve("k", by.k_b.quant).halve("v", by.v_b.quant);
        Expanding { kernel: KERNEL.name, variant, tokens: TOKENS * side, bound: BOUND }
    }
}
