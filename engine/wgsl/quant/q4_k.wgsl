// Q4_K: d · s · q − dmin · m, six bits of s and of m for 32 values, d and dmin for 256.

const w_zero = 0u;
const w_units = vec4<f32>(1.0, 1.0, 0x1p-4, 0x1p-4);
var<storage, read> w_nibbles: array<vec4<u32>>;
var<storage, read> w_scales: array<vec4<u32>>; // 16 bytes a superblock: d, dmin, packed s and m

fn w_bytes(g: u32) -> Bytes {
    return nibble_bytes(w_nibbles[g]);
}

fn w_pairs(g: u32) -> Pairs {
    return nibble_pairs(w_nibbles[g]);
}

fn w_affine(g: u32) -> vec4<f32> {
    let scales = w_scales[g >> 3u];
    let s = unpack2x16float(scales.x) * vec2<f32>(scale_min(scales, g & 7u));
    return vec4<f32>(s.x, s.x, -s.y, -s.y);
}
