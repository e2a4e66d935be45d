// y = W · x, or y += W · x, for each of a stack of matrices with inputs and outputs of their own.

struct Params {
    rows: u32,     // rows of one matrix
    groups: u32,   // groups in a row
    x_stride: u32, // vec4s from one matrix's input to the next's
    y_stride: u32, // values from one matrix's output to the next's
}

var<uniform> params: Params;
var<storage, read> x: array<vec4<f32>>;
var<storage, read_write> y: array<f32>;

fn rows_of(slot: u32, row: u32, team: Team) -> array<f32, ROWS> {
    return dot_rows(slot, row, slot * params.x_stride, team);
}

fn store(slot: u32, row: u32, value: f32) {
    let at = slot * params.y_stride + row;
    if ACCUMULATE {
        y[at] += value;
    } else {
        y[at] = value;
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    each_row(i);
}
