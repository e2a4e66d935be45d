// y = W · x, or y += W · x, for each of a stack of matrices with inputs and outputs of their own.

var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let team = team_of(i);
    let matrix = i.workgroup.z;
    let row = first_row(i.workgroup, team);
    var sums: array<f32, ROWS>;
    for (var first = 0u; first < w_GROUPS; first += TILE) {
        let count = min(TILE, w_GROUPS - first);
        stage(matrix * X_STRIDE + 8u * first, count, i.local);
        w_add_rows(&sums, matrix, row, first, count, team);
        workgroupBarrier();
    }
    sums = finished(sums, team);
    for (var k = 0u; k < ROWS; k++) {
        if team.lane == 0u && row + k < w_ROWS {
            let at = matrix * Y_STRIDE + row + k;
            y[at] = select(sums[k], y[at] + sums[k], ACCUMULATE);
        }
    }
}
