// Q2_K: d · s · q − dmin · m, four bits of s and of m for 16 values, d and dmin for 256.

const w_zero = 0u;
var<storage, read> w_crumbs: array<vec2<u32>>;
var<storage, read> w_scales: array<vec4<u32>>; // 16 bytes a superblock: s low, m high
var<storage, read> w_supers: array<u32>;       // d and dmin

fn w_bytes(g: u32) -> Bytes {
    return crumb_bytes(w_crumbs[g]);
}

fn w_affine(g: u32) -> vec4<f32> {
    let scales = w_scales[g >> 3u];
    let at = 2u * (g & 7u);
    let low = byte_of(scales, at);
    let high = byte_of(scales, at + 1u);
    let d = unpack2x16float(w_supers[g >> 3u]);
    let s = d.x * vec2<f32>(f32(low & 15u), f32(high & 15u));
    let m = d.y * vec2<f32>(f32(low >> 4u), f32(high >> 4u));
    return vec4<f32>(s, -m);
}
