// y = the rows of the embedding that the tokens name or, with NEXT, the tokens that follow them. One invocation a group.

struct Params {
    groups: u32, // groups in a row
    width: u32,  // values in a row
    rows: u32,
    pitch: u32,  // values from one token's row of y to the next's
}

var<uniform> params: Params;
var<storage, read> sampled: array<u32>; // as op/sample.wgsl leaves it
var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= params.groups {
        return;
    }
    // Chosen on the GPU it may be no token at all, which the host learns only later.
    let named = select(batch.rows[id.y].token, batch.rows[id.y].next, NEXT);
    let row = min(id_of(named), params.rows - 1u);
    var values = w_decode(row * params.groups + id.x);
    let to = id.y * params.pitch + 32u * id.x;
    let count = min(32u, params.width - 32u * id.x);
    for (var i = 0u; i < count; i++) {
        y[to + i] = values[i >> 2u][i & 3u];
    }
}
