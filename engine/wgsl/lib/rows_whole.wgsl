// The result of attention of many rows if one workgroup reads the whole cache: the output. There is one split.

var<storage, read_write> y: array<vec4<f32>>; // [row][chunk]

fn leave_chunk(row: u32, split: u32, chunk: u32, sum: vec4<f32>, total: f32) {
    y[row * Y_STRIDE + chunk] = sum / total;
}

fn leave_stats(row: u32, split: u32, top: f32, total: f32) {}
