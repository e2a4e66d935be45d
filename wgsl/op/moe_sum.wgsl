// x += Σ weights[slot] · y[slot]: the chosen experts' outputs join the residual stream.

struct Params {
    width: u32,
    y_stride: u32, // values from one slot's output to the next's
    slots: u32,
}

var<uniform> params: Params;
var<storage, read> weights: array<f32>;
var<storage, read> y: array<f32>;
var<storage, read_write> x: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= params.width {
        return;
    }
    var sum = 0.0;
    for (var slot = 0u; slot < params.slots; slot++) {
        sum += weights[slot] * y[slot * params.y_stride + id.x];
    }
    x[id.x] += sum;
}
