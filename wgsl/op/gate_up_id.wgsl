// y[slot] = silu(gate[e] · x) · (up[e] · x) with e = ids[slot]: the first half of the chosen experts.

struct Params {
    rows: u32,     // rows of one expert's matrix
    groups: u32,   // groups in a row
    y_stride: u32, // values from one slot's output to the next's
}

var<uniform> params: Params;
var<storage, read> ids: array<u32>;
var<storage, read> x: array<vec4<f32>>;
var<storage, read_write> y: array<f32>;

fn rows_of(slot: u32, row: u32, team: Team) -> array<f32, ROWS> {
    return gated_rows(ids[slot], row, 0u, team);
}

fn store(slot: u32, row: u32, value: f32) {
    y[slot * params.y_stride + row] = value;
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    each_row(i);
}
