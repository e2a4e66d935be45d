// Pair i of the rotary part of a row's key or query, values 2i and 2i + 1, rotated by the row's angle i. The host
// computes cosines and sines in full precision: GPUs do not guarantee those of thousands of radians.
fn rotated(pair: vec2<f32>, row: u32, i: u32) -> vec2<f32> {
    let rotation = batch.rows[row].rotations[i];
    return vec2<f32>(pair.x * rotation.x - pair.y * rotation.y, pair.x * rotation.y + pair.y * rotation.x);
}
