// The dot product of an affine format with activations of signed bytes.

// Dot product of group g and the activations.
fn w_dot(g: u32, x: ptr<function, Group>) -> f32 {
    let bytes = w_bytes(g);
    let a = w_affine(g);
    let products = vec2<f32>(f32(dot_bytes(bytes.low, (*x).low)), f32(dot_bytes(bytes.high, (*x).high)));
    return dot(a.xy, (*x).scales * products) + dot(a.zw, (*x).sums);
}
