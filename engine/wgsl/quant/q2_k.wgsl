// Q2_K: d · s · q − dmin · m, four bits of s and of m for 16 values, d and dmin for 256.

const w_zero = 0u;
const w_units = vec4<f32>(1.0, 0x1p-2, 0x1p-4, 0x1p-6);
var<storage, read> w_crumbs: array<vec2<u32>>;
var<storage, read> w_scales: array<u32>; // four bytes for two groups: s low, m high
var<storage, read> w_supers: array<u32>;       // d and dmin

fn w_bytes(g: u32) -> Bytes {
    return crumb_bytes(w_crumbs[g]);
}

fn w_pairs(g: u32) -> Pairs {
    return crumb_pairs(w_crumbs[g]);
}

fn w_affine(g: u32) -> vec4<f32> {
    let both = two_bytes(w_scales[g >> 1u], g);
    let d = unpack2x16float(w_supers[g >> 3u]);
    let s = d.x * pair_values(both & 0x000f000fu);
    let m = 0x1p-4 * d.y * pair_values(both & 0x00f000f0u);
    return vec4<f32>(s, -m);
}
