// y = the hidden state that is stored for a single row's position plus a constant: see op/keep_hidden.wgsl.

struct Params {
    width: u32,
    ahead: u32,
}

var<uniform> params: Params;
var<storage, read> ring: array<f32>; // vectors of `width` values
var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < params.width {
        y[id.x] = ring[(batch.rows[0].position + params.ahead) % PLACES * params.width + id.x];
    }
}
