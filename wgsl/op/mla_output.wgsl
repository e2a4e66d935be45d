// y[head] = W[head] · the head's attention, joined from its splits: every workgroup of a head joins them anew.

var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let team = team_of(i);
    let head = i.workgroup.z;
    let row = first_row(i.workgroup, team);
    merge(head, i.local);
    workgroupBarrier();
    var sums: array<f32, ROWS>;
    for (var first = 0u; first < w_GROUPS; first += TILE) {
        let count = min(TILE, w_GROUPS - first);
        stage(8u * first, count, i.local);
        w_add_rows(&sums, head, row, first, count, team);
        workgroupBarrier();
    }
    sums = finished(sums, team);
    for (var k = 0u; k < ROWS; k++) {
        if team.lane == 0u && row + k < w_ROWS {
            y[head * Y_STRIDE + row + k] = sums[k];
        }
    }
}
