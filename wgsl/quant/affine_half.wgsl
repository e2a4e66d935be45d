// Values of an affine format as f16, for products of matrices. A byte under the exponent of 1024 is an f16 of 1024
// more than the byte: no conversion is as cheap.

// What is read of group g: bytes, scales and offsets.
fn w_raw(g: u32) -> array<vec4<u32>, 4> {
    let bytes = w_bytes(g);
    return array<vec4<u32>, 4>(bytes.low, bytes.high, bitcast<vec4<u32>>(w_affine(g)), vec4<u32>(0u));
}

// The 32 values of a group, times WEIGHT_UNIT: 0, 2, 1, 3 of every four. Those beyond 4094 would be infinite: models
// have none.
fn w_halves(raw: array<vec4<u32>, 4>) -> array<vec4<f16>, 8> {
    let sign = vec4<u32>(w_zero * 0x01010101u);
    let low = raw[0] ^ sign;
    let high = raw[1] ^ sign;
    let zero = vec4<f16>(f16(1024u + w_zero));
    let a = vec4<f16>(WEIGHT_UNIT * bitcast<vec4<f32>>(raw[2]));
    var out: array<vec4<f16>, 8>;
    for (var k = 0u; k < 4u; k++) {
        out[k] = fma(vec4<f16>(a.x), bytes_above_1024(low[k]) - zero, vec4<f16>(a.z));
        out[k + 4u] = fma(vec4<f16>(a.y), bytes_above_1024(high[k]) - zero, vec4<f16>(a.w));
    }
    return out;
}
