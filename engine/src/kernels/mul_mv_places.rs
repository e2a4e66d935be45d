//! Matrix times vector as in [`mul_mv`](super::mul_mv), for batches of more rows: each group of the matrix is decoded
//! once for several rows of the batch.

use super::Kernel;
use super::matvec::MatvecProduct;
use super::places::Places;
use super::tiling::MAX_SUMS;
use crate::plan::{Builder, VariantBuilder};
use crate::quant::Arithmetic;
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mul_mv_places.wgsl");

pub(super) const KERNEL: Kernel = Kernel { name: "mul_mv_places", op: OP, params: &[], matrices: &[] };

/// How this kernel computes `product`, with as many vectors at a time as leave the device enough workgroups and fit its
/// workgroup memory. `None` if it cannot: it needs one matrix, and one vector for each row of the batch.
pub(super) fn places<'a>(plan: &Builder, product: &'a MatvecProduct<'a>) -> Option<Places<'a>> {
    let one = product.layers == 1 && product.together == plan.rows() && product.arithmetic(plan) == Arithmetic::Int;
    let (most, blocks) = (plan.grouping()?.rows, product.blocks(plan, product.rows));
    let busy = |places: &usize| blocks * plan.rows().div_ceil(*places) >= plan.target().workgroups;
    let mut able = [8, 4, 2].into_iter().filter(|places| one && *places <= most).filter(busy);
    able.find_map(|places| Places::of(plan, product, (&KERNEL, 1, MAX_SUMS), places))
}

/// The shader.
pub(super) fn variant(plan: &Builder, product: &MatvecProduct<'_>, places: &Places<'_>) -> VariantBuilder {
    plan.count_files(places.variant(plan, product)).file(source!("lib/row_places.wgsl"))
}
