// y = row token[0] of the embedding. One invocation a group.

struct Params {
    groups: u32, // groups in a row
    width: u32,  // values in a row
    rows: u32,
}

var<uniform> params: Params;
var<storage, read> token: array<u32>;
var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= params.groups {
        return;
    }
    // Chosen on the GPU it may be no token at all, which the host learns only later.
    let row = min(token[0], params.rows - 1u);
    var values = w_decode(row * params.groups + id.x);
    let count = min(32u, params.width - 32u * id.x);
    for (var i = 0u; i < count; i++) {
        y[32u * id.x + i] = values[i >> 2u][i & 3u];
    }
}
