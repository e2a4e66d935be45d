// Joins the splits of attention. Each workgroup is for one head: those of a row of the batch lie along x, rows along y.

var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let head = workgroup.y * HEADS + workgroup.x; // of all rows
    if workgroup.y >= row_count() {
        return;
    }
    merge(head, local);
    workgroupBarrier();
    for (var k = local; k < RANK; k += WORKGROUP) {
        y[head * Y_STRIDE + k] = merged(k / 4u)[k % 4u];
    }
}
