// The dot product of an affine format with f32 activations. Bytes are masked out of their words but not
// shifted down: the activations carry the missing powers of two. What makes them unsigned, and the format's
// own offset, is multiplied once with the sum of the activations.

// Dot product of group g and the activations.
fn w_dot(g: u32, x: ptr<function, Group>) -> f32 {
    let bytes = w_bytes(g);
    let sign = vec4<u32>(w_zero * 0x01010101u);
    let low = bytes.low ^ sign;
    let high = bytes.high ^ sign;
    let a = w_affine(g);
    let zero = f32(w_zero);
    let sums = (*x).sums;
    var products = vec2<f32>(
        dot(bytes_in_place(low.x), (*x).scaled[0]) + dot(bytes_in_place(low.y), (*x).scaled[1])
            + dot(bytes_in_place(low.z), (*x).scaled[2]) + dot(bytes_in_place(low.w), (*x).scaled[3]),
        dot(bytes_in_place(high.x), (*x).scaled[4]) + dot(bytes_in_place(high.y), (*x).scaled[5])
            + dot(bytes_in_place(high.z), (*x).scaled[6]) + dot(bytes_in_place(high.w), (*x).scaled[7]),
    );
    return dot(a.xy, products - zero * sums) + dot(a.zw, sums);
}
