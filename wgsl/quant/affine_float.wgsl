// The dot product of an affine format with f32 activations.

fn w_unsigned(word: u32) -> u32 {
    return word ^ (w_zero * 0x01010101u);
}

// Dot product of group g and the activations.
fn w_dot(g: u32, x: ptr<function, Group>) -> f32 {
    var words = w_bytes(g);
    var low = 0.0;
    var high = 0.0;
    for (var k = 0u; k < 4u; k++) {
        low += dot(bytes_in_place(w_unsigned(words[k])), (*x).scaled[k]);
        high += dot(bytes_in_place(w_unsigned(words[k + 4u])), (*x).scaled[k + 4u]);
    }
    let a = w_affine(g);
    let zero = f32(w_zero);
    return a.x * (low - zero * (*x).low) + a.y * (high - zero * (*x).high) + a.z * (*x).low + a.w * (*x).high;
}
