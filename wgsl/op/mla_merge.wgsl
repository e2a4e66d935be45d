// Joins the splits of the attention, a workgroup a head.

var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let head = workgroup.x;
    if head >= token_count() * HEADS {
        return;
    }
    merge(head, local);
    workgroupBarrier();
    for (var k = local; k < RANK; k += WORKGROUP) {
        y[head * Y_STRIDE + k] = merged(k / 4u)[k % 4u];
    }
}
