// How activations are rounded to signed bytes with one scale for 16 values: for adapters that multiply four bytes at a
// time.

struct Half {
    words: vec4<u32>,
    scale: f32,
    sum: f32, // of the rounded values
}

const SMALLEST = 1e-30; // below this a half becomes all zeros, because its inverse would not be finite

fn rounded_half(v: array<vec4<f32>, 4>) -> Half {
    let largest = max(max(abs(v[0]), abs(v[1])), max(abs(v[2]), abs(v[3])));
    let top = max(max(largest.x, largest.y), max(largest.z, largest.w));
    let inverse = select(0.0, 127.0 / top, top > SMALLEST);
    let words = vec4<u32>(
        rounded(v[0] * inverse), rounded(v[1] * inverse), rounded(v[2] * inverse), rounded(v[3] * inverse),
    );
    // A NaN is lost in a maximum and in a byte, but not in a sum, and the scale passes it on. (A fast-math compiler
    // such as Metal's may remove this. Products of bytes are not the default there.)
    let total = dot(abs(v[0]) + abs(v[1]) + abs(v[2]) + abs(v[3]), vec4<f32>(1.0));
    let lost = (bitcast<u32>(total) & 0x7fffffffu) > 0x7f800000u;
    let scale = select(select(0.0, top / 127.0, top > SMALLEST), total, lost);
    return Half(words, scale, scale * f32(dot_bytes(words, vec4<u32>(0x01010101u))));
}

fn rounded(v: vec4<f32>) -> u32 {
    return pack4xI8(vec4<i32>(round(v)));
}

// Dot product of 16 signed bytes with 16 others.
fn dot_bytes(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w);
}
