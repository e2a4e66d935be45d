// Rotates the rotary part of every query and writes it after the absorbed part. Queries are those of all heads, one row
// of the batch after another. Each invocation has one pair: the pairs of a row of the batch are along x, rows along y.

struct Params {
    heads: u32,    // queries of a row of the batch
    pairs: u32,    // pairs of the rotary part
    q_stride: u32, // values from one query to the next
    q_offset: u32, // values before the rotary part of a query
    y_stride: u32, // values from one absorbed query to the next
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
    let query = id.y * params.heads + head; // of all rows
    let i = id.x % params.pairs;
    let source = query * params.q_stride + params.q_offset + 2u * i;
    let to = query * params.y_stride + params.y_offset + 2u * i;
    let pair = rotated(vec2<f32>(q[source], q[source + 1u]), id.y, i);
    y[to] = pair.x;
    y[to + 1u] = pair.y;
}
