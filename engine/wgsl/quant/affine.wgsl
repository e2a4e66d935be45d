// For formats whose values are scale · byte + offset, with one scale and one offset for each half of a group. The bytes
// are stored, or looked up in a table. The formats provide, besides their streams:
//   w_bytes(g)   the group's 32 values as signed bytes
//   w_pairs(g)   the same as pairs of unsigned numbers, with powers of two in them
//   w_units      the inverse powers of two of values 0..7, 8..15, 16..23 and 24..31
//   w_affine(g)  (scale of 0..15, scale of 16..31, offset of 0..15, offset of 16..31)
//   w_zero       the number to add to a byte to make it unsigned: 0 or 128

// The four values of a word as numbers, with the power of two. No integer is converted, because that is slow on Apple's
// GPUs: the exponent of 1024 makes f16 of the pairs, and what it adds is subtracted at once, exactly.
fn w_four(even: u32, odd: u32) -> vec4<f32> {
    let exponents = PAIR_OF_1024 | (w_zero * 0x00010001u);
    let e = unpack2x16float(even ^ exponents);
    let o = unpack2x16float(odd ^ exponents);
    return vec4<f32>(e.x, o.x, e.y, o.y) - f32(1024u + w_zero);
}

// The 32 values of group g.
fn w_decode(g: u32) -> array<vec4<f32>, 8> {
    let p = w_pairs(g);
    let a = w_affine(g);
    let scales = w_units * a.xxyy;
    return array<vec4<f32>, 8>(
        scales.x * w_four(p.low_even.x, p.low_odd.x) + a.z, scales.x * w_four(p.low_even.y, p.low_odd.y) + a.z,
        scales.y * w_four(p.low_even.z, p.low_odd.z) + a.z, scales.y * w_four(p.low_even.w, p.low_odd.w) + a.z,
        scales.z * w_four(p.high_even.x, p.high_odd.x) + a.w, scales.z * w_four(p.high_even.y, p.high_odd.y) + a.w,
        scales.w * w_four(p.high_even.z, p.high_odd.z) + a.w, scales.w * w_four(p.high_even.w, p.high_odd.w) + a.w,
    );
}
