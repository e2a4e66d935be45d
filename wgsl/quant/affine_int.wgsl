// The dot product of an affine format with activations of signed bytes.

// Dot product of group g and the activations.
fn w_dot(g: u32, x: ptr<function, Group>) -> f32 {
    var words = w_bytes(g);
    var low = 0;
    var high = 0;
    for (var k = 0u; k < 4u; k++) {
        low += dot4I8Packed(words[k], (*x).words[k]);
        high += dot4I8Packed(words[k + 4u], (*x).words[k + 4u]);
    }
    let a = w_affine(g);
    return (*x).scale * (a.x * f32(low) + a.y * f32(high)) + a.z * (*x).low + a.w * (*x).high;
}
