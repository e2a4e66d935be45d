// The results of attention of many rows if several workgroups share the cache: the output before division by the sum of
// weights, and, for each row and split, the score that weights are relative to, and that sum.

var<storage, read_write> parts: array<vec4<f32>>; // [row][split][chunk]
var<storage, read_write> stats: array<vec2<f32>>; // [row][split]

fn leave_chunk(row: u32, split: u32, chunk: u32, sum: vec4<f32>, total: f32) {
    parts[(row * split_count() + split) * LATENT + chunk] = sum;
}

fn leave_stats(row: u32, split: u32, top: f32, total: f32) {
    stats[row * split_count() + split] = vec2<f32>(top, total);
}
