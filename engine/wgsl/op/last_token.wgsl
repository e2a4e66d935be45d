// y = the vector of the batch's last row.

struct Params {
    width: u32,
    pitch: u32, // values from one row's vector to the next
}

var<uniform> params: Params;
var<storage, read> x: array<f32>;
var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < params.width {
        y[id.x] = x[(row_count() - 1u) * params.pitch + id.x];
    }
}
