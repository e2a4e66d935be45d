// x += Σ weights[slot] · y[slot] over the slots of a row, in their order: the selected experts' outputs are added to
// the residual stream of every row of the batch.

var<storage, read> weights: array<f32>;        // [row][rank]
var<storage, read> y: array<vec4<f32>>;        // [row][rank][value]
var<storage, read_write> x: array<vec4<f32>>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let at = workgroup.x * WORKGROUP + local;
    let token = workgroup.y;
    if at >= WIDTH || token >= row_count() {
        return;
    }
    var sum = vec4<f32>(0.0);
    for (var k = 0u; k < TOP_K; k++) {
        let slot = token * TOP_K + k;
        sum += weights[slot] * y[slot * Y_STRIDE + at];
    }
    x[token * X_PITCH + at] += sum;
}
