// The input of the multi-token-prediction block: for each row the embedding of its next token, followed by the hidden
// state from which the model predicted that token, each normalised with a norm of its own. One workgroup for each half
// of a row.

struct Params {
    width: u32,
    epsilon: f32,
    embedding_pitch: u32, // values from one row's vector to the next's
    hidden_pitch: u32,
    y_pitch: u32,
}

var<uniform> params: Params;
var<storage, read> embedding: array<f32>;
var<storage, read> hidden: array<f32>;
var<storage, read> embedding_norm: array<f32>;
var<storage, read> hidden_norm: array<f32>;
var<storage, read_write> y: array<f32>;

// The first value of a row's hidden state: at the row's index or, with KEPT, at its place in the ring buffers.
fn hidden_of(row: u32) -> u32 {
    if KEPT {
        return ring_index(row, 0u) * params.hidden_pitch;
    }
    return row * params.hidden_pitch;
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let row = i.workgroup.y;
    if row >= row_count() {
        return;
    }
    let is_hidden = i.workgroup.x == 1u;
    // `select` evaluates both loads, so each index must be valid in its own buffer.
    let embedding_at = row * params.embedding_pitch;
    let hidden_at = hidden_of(row);
    var squares = 0.0;
    for (var k = i.local; k < params.width; k += WORKGROUP) {
        let value = select(embedding[embedding_at + k], hidden[hidden_at + k], is_hidden);
        squares += value * value;
    }
    let mean = workgroup_sum(squares, team_of(i)) / f32(params.width);
    let scale = inverseSqrt(mean + params.epsilon);
    let to = row * params.y_pitch + select(0u, params.width, is_hidden);
    for (var k = i.local; k < params.width; k += WORKGROUP) {
        let value = select(embedding[embedding_at + k], hidden[hidden_at + k], is_hidden);
        y[to + k] = value * scale * select(embedding_norm[k], hidden_norm[k], is_hidden);
    }
}
