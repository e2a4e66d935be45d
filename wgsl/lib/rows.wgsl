// Dot products of rows row..row + ROWS of one matrix with the vector at vec4 `at` of x, in every lane of
// the team. Rows past the last repeat it, so that no load leaves the matrix.
fn dot_rows(matrix: u32, row: u32, at: u32, team: Team) -> array<f32, ROWS> {
    var sums: array<f32, ROWS>;
    for (var g = team.lane; g < params.groups; g += team.lanes) {
        var a = load_group(at + 8u * g);
        for (var k = 0u; k < ROWS; k++) {
            let r = min(row + k, params.rows - 1u);
            sums[k] += w_dot((matrix * params.rows + r) * params.groups + g, &a);
        }
    }
    for (var k = 0u; k < ROWS; k++) {
        sums[k] = team_sum(sums[k], team);
    }
    return sums;
}
