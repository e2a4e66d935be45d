// MXFP4: 2^(e − 127) · q, an exponent e for 32 values, each a float q of 4 bits. The bytes are 2q + 12.

const w_zero = 0u;
const w_units = vec4<f32>(1.0);
var<storage, read> w_planes: array<vec4<u32>>;
var<storage, read> w_scales: array<u32>; // four e a word

fn w_bytes(g: u32) -> Bytes {
    return small_float_bytes(w_planes[g]);
}

fn w_pairs(g: u32) -> Pairs {
    return byte_pairs(w_bytes(g));
}

// 2^(e − 128). The smallest two are below the normal range, and become zero.
fn w_affine(g: u32) -> vec4<f32> {
    let e = extractBits(w_scales[g >> 2u], 8u * (g & 3u), 8u);
    let d = bitcast<f32>((max(e, 1u) - 1u) << 23u);
    return vec4<f32>(d, d, -12.0 * d, -12.0 * d);
}
