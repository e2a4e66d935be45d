// The dot product of an affine format with activations of signed bytes.

// Dot product of group g and the activations.
fn w_dot(g: u32, x: ptr<function, Group>) -> f32 {
    let bytes = w_bytes(g);
    let low = dot_bytes(bytes.low, (*x).low);
    let high = dot_bytes(bytes.high, (*x).high);
    return affine_dot(w_affine(g), low, high, (*x).scales, (*x).sums);
}
