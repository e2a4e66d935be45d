// Values of an affine format as f16, for products of matrices. A byte with the exponent of 1024 is the f16 of the byte
// + 1024, which is cheaper than any conversion.

// The raw data of group g: bytes, scales and offsets.
fn w_raw(g: u32) -> array<vec4<u32>, 4> {
    let bytes = w_bytes(g);
    return array<vec4<u32>, 4>(bytes.low, bytes.high, bitcast<vec4<u32>>(w_affine(g)), vec4<u32>(0u));
}

// The 32 values of a group, times WEIGHT_UNIT: 0, 2, 1, 3 of every four. Values beyond 4094 would be infinite, but
// models have none.
fn w_halves(raw: array<vec4<u32>, 4>) -> array<vec4<f16>, 8> {
    let sign = vec4<u32>(w_zero * 0x01010101u);
    let low = raw[0] ^ sign;
    let high = raw[1] ^ sign;
    let a = vec4<f16>(WEIGHT_UNIT * bitcast<vec4<f32>>(raw[2]));
    return array<vec4<f16>, 8>(
        w_four_halves(low.x, a.xz), w_four_halves(low.y, a.xz), w_four_halves(low.z, a.xz), w_four_halves(low.w, a.xz),
        w_four_halves(high.x, a.yw), w_four_halves(high.y, a.yw), w_four_halves(high.z, a.yw),
        w_four_halves(high.w, a.yw),
    );
}

// Bytes times a.x, plus a.y.
fn w_four_halves(bytes: u32, a: vec2<f16>) -> vec4<f16> {
    let zero = vec4<f16>(f16(1024u + w_zero));
    return fma(vec4<f16>(a.x), bytes_above_1024(bytes) - zero, vec4<f16>(a.y));
}
