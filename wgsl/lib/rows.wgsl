// Rows of a matrix of w_ROWS rows of w_GROUPS groups, or of one of a stack of them.

// Adds to the sums this lane's share of the products of rows row..row + ROWS, from group `first` on, with the
// `count` staged groups. Rows past the last repeat it, so that no load leaves the matrix.
fn w_add_rows(
    sums: ptr<function, array<f32, ROWS>>, matrix: u32, row: u32, first: u32, count: u32, team: Team,
) {
    for (var g = team.lane; g < count; g += LANES) {
        var a = staged_group(g);
        for (var k = 0u; k < ROWS; k++) {
            let r = matrix * w_ROWS + min(row + k, w_ROWS - 1u);
            (*sums)[k] += w_dot(r * w_GROUPS + first + g, &a);
        }
    }
}
