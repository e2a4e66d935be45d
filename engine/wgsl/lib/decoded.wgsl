// Groups of weights as bytes in registers, which a lane multiplies by several vectors.

struct Decoded {
    bytes: Bytes,
    affine: vec4<f32>, // scales and offsets of both halves
}

// As w_dot of quant/affine_int.wgsl, to the last bit.
fn decoded_dot(w: Decoded, x: Group) -> f32 {
    let low = dot_bytes(w.bytes.low, x.low);
    let high = dot_bytes(w.bytes.high, x.high);
    return affine_dot(w.affine, low, high, x.scales, x.sums);
}
