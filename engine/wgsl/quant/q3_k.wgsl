// Q3_K: d · s · (q − 4), a signed s for 16 values, d for 256. The repacked scales are signed bytes.

const w_zero = 0u;
const w_units = vec4<f32>(1.0, 0x1p-2, 0x1p-4, 0x1p-6);
var<storage, read> w_crumbs: array<vec2<u32>>;
var<storage, read> w_bits: array<u32>;
var<storage, read> w_scales: array<u32>; // four signed bytes for two groups
var<storage, read> w_supers: array<u32>;       // two d a word

fn w_bytes(g: u32) -> Bytes {
    let crumbs = crumb_bytes(w_crumbs[g]);
    let bits = w_bits[g];
    let low = vec4<u32>(bits << 2u, bits << 1u, bits, bits >> 1u);
    let high = vec4<u32>(bits) >> vec4<u32>(2u, 3u, 4u, 5u);
    let m = vec4<u32>(0x04040404u);
    return Bytes(crumbs.low | (low & m), crumbs.high | (high & m));
}

fn w_pairs(g: u32) -> Pairs {
    let p = crumb_pairs(w_crumbs[g]);
    let b = vec4<u32>(w_bits[g]);
    let even = b << vec4<u32>(2u, 1u, 2u, 1u);
    let odd = b >> vec4<u32>(6u, 7u, 6u, 7u);
    let low = vec4<u32>(0x00040004u, 0x00040004u, 0x00100010u, 0x00100010u);
    let high = vec4<u32>(0x00400040u, 0x00400040u, 0x01000100u, 0x01000100u);
    return Pairs(
        p.low_even | (even & low), p.low_odd | (odd & low),
        p.high_even | (even & high), p.high_odd | (odd & high));
}

fn w_affine(g: u32) -> vec4<f32> {
    let d = half_of(w_supers[g >> 4u], g >> 3u);
    let s = d * signed_pair_values(two_bytes(w_scales[g >> 1u], g));
    return vec4<f32>(s, -4.0 * s);
}
