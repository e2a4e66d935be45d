// y[slot] = W[ids[slot]] · x[slot]: the matrices are chosen on the GPU.

struct Params {
    rows: u32,     // rows of one matrix
    groups: u32,   // groups in a row
    x_stride: u32, // vec4s from one slot's input to the next's
    y_stride: u32, // values from one slot's output to the next's
}

var<uniform> params: Params;
var<storage, read> ids: array<u32>;
var<storage, read> x: array<vec4<f32>>;
var<storage, read_write> y: array<f32>;

fn rows_of(slot: u32, row: u32, team: Team) -> array<f32, ROWS> {
    return dot_rows(ids[slot], row, slot * params.x_stride, team);
}

fn store(slot: u32, row: u32, value: f32) {
    y[slot * params.y_stride + row] = value;
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    each_row(i);
}
