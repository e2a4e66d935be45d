// y = for each row the hidden state that is stored for its position plus a constant: see op/keep_hidden.wgsl.

struct Params {
    width: u32,
    ahead: u32,
    pitch: u32, // values from one row's vector to the next
}

var<uniform> params: Params;
var<storage, read> ring: array<f32>; // vectors of `width` values
var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < params.width && id.y < row_count() {
        y[id.y * params.pitch + id.x] = ring[ring_index(id.y, params.ahead) * params.width + id.x];
    }
}
