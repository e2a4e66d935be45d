// IQ4_XS: d · (s − 32) · t[q], six bits of s for 32 values, d for 256, with the table t of IQ4_NL.

const w_zero = 128u;
const w_units = vec4<f32>(1.0);
var<storage, read> w_planes: array<vec4<u32>>;
var<storage, read> w_scales: array<vec2<u32>>; // 8 bytes a superblock: d, high two bits of s, low four bits

fn w_bytes(g: u32) -> Bytes {
    return uneven_bytes(w_planes[g]);
}

fn w_pairs(g: u32) -> Pairs {
    return byte_pairs(w_bytes(g));
}

fn w_affine(g: u32) -> vec4<f32> {
    let scales = w_scales[g >> 3u];
    let at = g & 7u;
    let bits = pair_values(((scales.y >> (4u * at)) & 15u) | ((scales.x >> (2u * at)) & 0x00030000u));
    let d = unpack2x16float(scales.x).x * (bits.x + 16.0 * bits.y - 32.0);
    return vec4<f32>(d, d, 0.0, 0.0);
}
