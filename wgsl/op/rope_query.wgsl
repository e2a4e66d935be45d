// Turns the rotary part of every query head and lays it behind the head's absorbed part. One invocation
// a pair.

struct Params {
    heads: u32,
    pairs: u32,    // pairs of the rotary part
    q_stride: u32, // values from one head's query to the next's
    q_offset: u32, // values before the rotary part of a query
    y_stride: u32, // values from one head's absorbed query to the next's
    y_offset: u32, // values before the rotary part of an absorbed query
}

var<uniform> params: Params;
var<storage, read> q: array<f32>;
var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let head = id.x / params.pairs;
    if head >= params.heads {
        return;
    }
    let i = id.x % params.pairs;
    let source = head * params.q_stride + params.q_offset + 2u * i;
    let to = head * params.y_stride + params.y_offset + 2u * i;
    let turned = rotated(vec2<f32>(q[source], q[source + 1u]), i);
    y[to] = turned.x;
    y[to + 1u] = turned.y;
}
