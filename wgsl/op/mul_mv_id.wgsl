// y[slot] = W[ids[slot]] · x[slot]: the matrices are chosen on the GPU.

var<storage, read> ids: array<u32>;
var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let team = team_of(i);
    let slot = i.workgroup.z;
    let row = first_row(i.workgroup, team);
    var sums: array<f32, ROWS>;
    for (var first = 0u; first < w_GROUPS; first += TILE) {
        let count = min(TILE, w_GROUPS - first);
        stage(slot * X_STRIDE + 8u * first, count, i.local);
        w_add_rows(&sums, ids[slot], row, first, count, team);
        workgroupBarrier();
    }
    sums = finished(sums, team);
    for (var k = 0u; k < ROWS; k++) {
        if team.lane == 0u && row + k < w_ROWS {
            y[slot * Y_STRIDE + row + k] = sums[k];
        }
    }
}
