// y = the rows of the embedding for the tokens or, with NEXT, for the next tokens. One invocation for each group.

struct Params {
    groups: u32, // groups in a row
    width: u32,  // values in a row
    rows: u32,
    pitch: u32,  // values from one token's row of y to the next's
}

var<uniform> params: Params;
var<storage, read> sampled: array<u32>; // as op/sample.wgsl writes it
var<storage, read_write> y: array<f32>;

// Writes values n to n + 3 of a group, up to value `count`.
fn leave_four(to: u32, n: u32, count: u32, v: vec4<f32>) {
    if n < count { y[to + n] = v.x; }
    if n + 1u < count { y[to + n + 1u] = v.y; }
    if n + 2u < count { y[to + n + 2u] = v.z; }
    if n + 3u < count { y[to + n + 3u] = v.w; }
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= params.groups {
        return;
    }
    // If the GPU sampled it, it may not be a token at all, which the host learns only later.
    let named = select(batch.rows[id.y].token, batch.rows[id.y].next, NEXT);
    let row = min(id_of(named), params.rows - 1u);
    let values = w_decode(row * params.groups + id.x);
    let to = id.y * params.pitch + 32u * id.x;
    let count = min(32u, params.width - 32u * id.x);
    leave_four(to, 0u, count, values[0]);
    leave_four(to, 4u, count, values[1]);
    leave_four(to, 8u, count, values[2]);
    leave_four(to, 12u, count, values[3]);
    leave_four(to, 16u, count, values[4]);
    leave_four(to, 20u, count, values[5]);
    leave_four(to, 24u, count, values[6]);
    leave_four(to, 28u, count, values[7]);
}
