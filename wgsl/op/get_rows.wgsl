// y = row `token` of the embedding. One invocation a group.

struct Params {
    groups: u32, // groups in a row
    width: u32,  // values in a row
}

var<uniform> params: Params;
var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= params.groups {
        return;
    }
    var values = w_decode(state.token * params.groups + id.x);
    let count = min(32u, params.width - 32u * id.x);
    for (var i = 0u; i < count; i++) {
        y[32u * id.x + i] = values[i >> 2u][i & 3u];
    }
}
