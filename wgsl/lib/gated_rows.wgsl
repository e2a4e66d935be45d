// Rows of a pair of matrices, gate and up, of w_gate_ROWS rows of w_gate_GROUPS groups each.

// As w_add_rows, for both matrices: a lane reads what is staged once.
fn w_add_gated(
    gates: ptr<function, array<f32, ROWS>>, ups: ptr<function, array<f32, ROWS>>,
    matrix: u32, row: u32, first: u32, count: u32, team: Team,
) {
    for (var g = team.lane; g < count; g += LANES) {
        var a = staged_group(g);
        for (var k = 0u; k < ROWS; k++) {
            let r = matrix * w_gate_ROWS + min(row + k, w_gate_ROWS - 1u);
            let group = r * w_gate_GROUPS + first + g;
            (*gates)[k] += w_gate_dot(group, &a);
            (*ups)[k] += w_up_dot(group, &a);
        }
    }
}
