// y = silu(gate · x) · (up · x): the first half of a SwiGLU feed-forward.

struct Params {
    rows: u32,   // rows of either matrix
    groups: u32, // groups in a row
}

var<uniform> params: Params;
var<storage, read> x: array<vec4<f32>>;
var<storage, read_write> y: array<f32>;

fn rows_of(slot: u32, row: u32, team: Team) -> array<f32, ROWS> {
    return gated_rows(0u, row, 0u, team);
}

fn store(slot: u32, row: u32, value: f32) {
    y[row] = value;
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    each_row(i);
}
