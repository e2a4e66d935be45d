// Q3_K: d · s · (q − 4), a signed s for 16 values, d for 256. The repacked scales are signed bytes.

const w_zero = 0u;
var<storage, read> w_crumbs: array<vec2<u32>>;
var<storage, read> w_bits: array<u32>;
var<storage, read> w_scales: array<vec4<u32>>; // 16 signed bytes a superblock
var<storage, read> w_supers: array<u32>;       // two d a word

fn w_bytes(g: u32) -> Bytes {
    let crumbs = crumb_bytes(w_crumbs[g]);
    let bits = w_bits[g];
    let shift = vec4<u32>(2u);
    return Bytes(crumbs.low | (bit_bytes(bits) << shift), crumbs.high | (bit_bytes(bits >> 16u) << shift));
}

fn w_affine(g: u32) -> vec4<f32> {
    let scales = w_scales[g >> 3u];
    let at = 2u * (g & 7u);
    let d = half_of(w_supers[g >> 4u], g >> 3u);
    let s = d * vec2<f32>(f32(signed_byte_of(scales, at)), f32(signed_byte_of(scales, at + 1u)));
    return vec4<f32>(s, -4.0 * s);
}
