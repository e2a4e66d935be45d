// y = silu(gate · x) · (up · x), for each of several inputs: the first half of a SwiGLU feed-forward.

fn write_sum(i: Invocation, k: u32, row: u32, column: u32, v: f32) {
    if row < w_gate_ROWS {
        y[(i.workgroup.z * COLUMNS + column) * Y_STRIDE + row] = v;
        epilogue_sum(k, row, column, i, v);
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let team = team_of(i);
    let vector = i.workgroup.z * COLUMNS;
    let row = first_row(i.workgroup, team);
    var sums: Gated;
    for (var first = 0u; first < w_gate_GROUPS; first += TILE) {
        let count = min(TILE, w_gate_GROUPS - first);
        stage(vector * X_STRIDE, COLUMNS, first, count, i);
        sums = added(sums, w_gated_rows(0u, row, first, count, team));
    }
    write_sums(i, team, row, swiglu_rows(sums, column_factors(team), team));
    epilogue(vector * Y_STRIDE, Y_STRIDE, COLUMNS, w_gate_ROWS, i);
}
