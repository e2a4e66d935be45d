// Joins the splits of the attention, a workgroup a head: those of a token along x, tokens along y.

var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let head = workgroup.y * HEADS + workgroup.x; // of all tokens
    if workgroup.y >= row_count() {
        return;
    }
    merge(head, local);
    workgroupBarrier();
    for (var k = local; k < RANK; k += WORKGROUP) {
        y[head * Y_STRIDE + k] = merged(k / 4u)[k % 4u];
    }
}
