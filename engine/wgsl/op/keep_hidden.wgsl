// Stores hidden states for the multi-token-prediction block in ring buffers, one for each sequence: the vector of each
// row, normalised, at its token's position plus a constant, modulo RING_LENGTH. If a sequence has more rows, its last
// ones are stored. One workgroup for each row.

struct Params {
    width: u32,
    epsilon: f32,
    pitch: u32, // values from one row's vector to the next
    ahead: u32,
}

var<uniform> params: Params;
var<storage, read> x: array<f32>;
var<storage, read> weight: array<f32>;
var<storage, read_write> ring: array<f32>; // vectors of `width` values

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let row = i.workgroup.x;
    if row >= row_count() || longest_of(row) - attended_by(row) >= RING_LENGTH {
        return;
    }
    let source = row * params.pitch;
    var squares = 0.0;
    for (var k = i.local; k < params.width; k += WORKGROUP) {
        squares += x[source + k] * x[source + k];
    }
    let mean = workgroup_sum(squares, team_of(i)) / f32(params.width);
    let scale = inverseSqrt(mean + params.epsilon);
    let to = ring_index(row, params.ahead) * params.width;
    for (var k = i.local; k < params.width; k += WORKGROUP) {
        ring[to + k] = x[source + k] * scale * weight[k];
    }
}
