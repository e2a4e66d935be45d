// Merges the splits of attention. Each workgroup is for one head: the heads of a row of the batch are along x, rows
// along y.

var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let head = i.workgroup.y * HEADS + i.workgroup.x; // of all rows
    if i.workgroup.y >= row_count() {
        return;
    }
    merge(head, i.local, team_of(i));
    workgroupBarrier();
    for (var k = i.local; k < RANK; k += WORKGROUP) {
        y[head * Y_STRIDE + k] = merged(k / 4u)[k % 4u];
    }
}
