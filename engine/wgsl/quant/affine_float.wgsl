// The dot product of an affine format with f32 activations. A format's powers of two are divided out of sums of eight
// products, and its offset is multiplied once with the sum of the activations.

// Dot product of group g and the activations.
fn w_dot(g: u32, x: ptr<function, Group>) -> f32 {
    let p = w_pairs(g);
    let a = w_affine(g);
    let products = w_units * vec4<f32>(
        dot(w_four(p.low_even.x, p.low_odd.x), (*x).raw[0]) + dot(w_four(p.low_even.y, p.low_odd.y), (*x).raw[1]),
        dot(w_four(p.low_even.z, p.low_odd.z), (*x).raw[2]) + dot(w_four(p.low_even.w, p.low_odd.w), (*x).raw[3]),
        dot(w_four(p.high_even.x, p.high_odd.x), (*x).raw[4]) + dot(w_four(p.high_even.y, p.high_odd.y), (*x).raw[5]),
        dot(w_four(p.high_even.z, p.high_odd.z), (*x).raw[6]) + dot(w_four(p.high_even.w, p.high_odd.w), (*x).raw[7]),
    );
    return dot(a.xy, products.xz + products.yw) + dot(a.zw, (*x).sums);
}
