// Groups of weights as bytes in registers, which a lane multiplies with several vectors.

struct Decoded {
    bytes: Bytes,
    affine: vec4<f32>, // scales and offsets of both halves
}

// As w_dot of quant/affine_int.wgsl, to the last bit.
fn decoded_dot(w: Decoded, x: Group) -> f32 {
    let products = vec2<f32>(f32(dot_bytes(w.bytes.low, x.low)), f32(dot_bytes(w.bytes.high, x.high)));
    return dot(w.affine.xy, x.scales * products) + dot(w.affine.zw, x.sums);
}
