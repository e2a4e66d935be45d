// A pair of a rotary part rotated by angle i: of one token, pair i is (2i, 2i + 1). The angles come from the host,
// in full precision: sines of thousands of radians are beyond what GPUs promise.
fn rotated(pair: vec2<f32>, i: u32) -> vec2<f32> {
    let rotation = batch.rotations[i];
    return vec2<f32>(pair.x * rotation.x - pair.y * rotation.y, pair.x * rotation.y + pair.y * rotation.x);
}
