//! Matrix times vector as in [`mul_mv`](super::mul_mv), for batches of more rows: each group of the matrix is decoded
//! once for several rows of the batch.

use super::Kernel;
use super::matvec::MatvecProduct;
use super::places::{MOST_SUMS, Places};
use crate::plan::{Builder, VariantBuilder};
use crate::quant::Arithmetic;
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mul_mv_places.wgsl");

pub(super) const KERNEL: Kernel = Kernel { name: "mul_mv_places", op: OP, params: &[], matrices: &[] };

/// The form of `product` with which the kernel computes it, if it can: one matrix, and a vector for each row. There are
/// fewer places than allowed if the device would have too few workgroups.
pub(super) fn places<'a>(plan: &Builder, product: &'a MatvecProduct<'a>) -> Option<Places<'a>> {
    let one = product.layers == 1 && product.together == plan.rows() && product.arithmetic(plan) == Arithmetic::Int;
    let (most, blocks) = (plan.grouping()?.rows, product.blocks(plan, product.rows));
    let busy = |places: &usize| blocks * plan.rows().div_ceil(*places) >= plan.target().workgroups;
    let most = [8, 4, 2].into_iter().filter(|places| *places <= most).find(busy)?;
    Places::of(plan, product, (&KERNEL, 1, MOST_SUMS), most).filter(|_| one)
}

/// The shader.
pub(super) fn variant(plan: &Builder, product: &MatvecProduct<'_>, places: &Places<'_>) -> VariantBuilder {
    plan.count_files(places.variant(plan, product)).file(source!("lib/row_places.wgsl"))
}
