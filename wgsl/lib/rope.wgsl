// A pair of a rotary part turned by angle i: of one token, pair i is (2i, 2i + 1). The angles come from the host,
// in full precision: sines of thousands of radians are beyond what GPUs promise.
fn rotated(pair: vec2<f32>, i: u32) -> vec2<f32> {
    let turn = batch.turns[i];
    return vec2<f32>(pair.x * turn.x - pair.y * turn.y, pair.x * turn.y + pair.y * turn.x);
}
