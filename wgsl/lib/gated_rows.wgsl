// silu(gate · x) · (up · x) for rows row..row + ROWS of one pair of matrices and the vector at vec4 `at`
// of x, in every lane of the team. Rows past the last repeat it, so that no load leaves the matrix.
fn gated_rows(matrix: u32, row: u32, at: u32, team: Team) -> array<f32, ROWS> {
    var gate: array<f32, ROWS>;
    var up: array<f32, ROWS>;
    for (var g = team.lane; g < params.groups; g += team.lanes) {
        var a = load_group(at + 8u * g);
        for (var k = 0u; k < ROWS; k++) {
            let r = min(row + k, params.rows - 1u);
            let group = (matrix * params.rows + r) * params.groups + g;
            gate[k] += gate_dot(group, &a);
            up[k] += up_dot(group, &a);
        }
    }
    for (var k = 0u; k < ROWS; k++) {
        let z = team_sum(gate[k], team);
        let sigmoid = 1.0 / (1.0 + exp(select(-z, 80.0, z < -80.0))); // beyond 88, e^x is not finite
        gate[k] = z * sigmoid * team_sum(up[k], team);
    }
    return gate;
}
