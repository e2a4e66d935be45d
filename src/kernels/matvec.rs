//! What the matrix-vector kernels share: their frame's constants, their grid, their twin.

use crate::plan::{Builder, MAX_GRID, VariantBuilder, Weight};
use crate::quant::{Arithmetic, Family, GROUP, Quant};
use crate::wgsl::{Source, source};

/// Invocations of a workgroup.
const WORKGROUP: usize = 64;
/// Rows a team works on at a time, sharing the activations it holds.
const ROWS: usize = 4;
/// Rows of a workgroup: with subgroups of 32, each takes its rows in one go.
const ROWS_PER_WORKGROUP: usize = 8;

/// The variant of a matvec kernel: constants, library and team; weights and frame are the caller's.
pub(super) fn variant(kernel: &'static str, op: Source, plan: &Builder) -> VariantBuilder {
    VariantBuilder::new(kernel, op, WORKGROUP)
        .constant("ROWS", "r", ROWS)
        .constant("ROWS_PER_WORKGROUP", "x", ROWS_PER_WORKGROUP)
        .constant("GRID_WIDTH", "", MAX_GRID as usize)
        .team(plan.team())
        .tagged(plan.arithmetic().group_file())
        .file(source!("lib/bits.wgsl"))
        .file(source!("lib/matvec.wgsl"))
}

/// The grid over `rows` rows of each of `matrices` matrices: row blocks fold into y past the limit of x.
pub(super) fn grid(rows: usize, matrices: usize) -> [usize; 3] {
    let blocks = rows.div_ceil(ROWS_PER_WORKGROUP);
    let width = MAX_GRID as usize;
    [blocks.min(width), blocks.div_ceil(width), matrices]
}

/// The dot product of row `row` of matrix `matrix` with `x`, and the sum of its terms' magnitudes.
pub(super) fn dot(values: &[f32], shape: [usize; 3], matrix: usize, row: usize, x: &[f32]) -> (f64, f64) {
    let [columns, rows, _] = shape;
    let row = &values[(matrix * rows + row) * columns..][..columns];
    let terms = row.iter().zip(x).map(|(&w, &x)| w as f64 * x as f64);
    terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()))
}

/// Activations {columns, n} as a product of the format sees them: as they are, or rounded to bytes with one
/// scale for 32 values.
pub(super) fn seen(x: &[f32], columns: usize, quant: &Quant, arithmetic: Arithmetic) -> Vec<f32> {
    if arithmetic == Arithmetic::Float || quant.family == Family::Plain {
        return x.to_vec();
    }
    let rounded = |group: &[f32]| {
        let top = group.iter().fold(0f32, |top, v| top.max(v.abs()));
        let (scale, inverse) = (top / 127.0, if top > 0.0 { 127.0 / top } else { 0.0 });
        group.iter().map(|v| (v * inverse).round_ties_even() * scale).collect::<Vec<f32>>()
    };
    x.chunks(columns).flat_map(|vector| vector.chunks(GROUP).flat_map(rounded)).collect()
}

/// What errors of a product are bounded by. A value that falls between two bytes may be rounded either way.
pub(super) fn bound(arithmetic: Arithmetic) -> f64 {
    if arithmetic == Arithmetic::Float { 3e-6 } else { 5e-4 }
}

/// silu(z) = z / (1 + e^−z).
pub(super) fn silu(z: f64) -> f64 {
    z / (1.0 + (-z).exp())
}

/// A shape with `format`'s shortest whole rows of at least `columns` values.
pub(super) fn columns_for(quant: &Quant, columns: usize) -> usize {
    if quant.ragged { columns } else { columns.next_multiple_of(quant.values) }
}

/// The bindings of several weights, each in its role.
pub(super) fn weights(builder: &Builder, roles: &[(&str, &Weight)]) -> Vec<crate::plan::Bound> {
    roles.iter().flat_map(|(role, weight)| builder.bound_weight(role, weight)).collect()
}
