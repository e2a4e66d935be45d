// Q6_K: d · s · (q − 32), a signed s for 16 values, d for 256.

const w_zero = 0u;
const w_units = vec4<f32>(1.0, 1.0, 0x1p-4, 0x1p-4);
var<storage, read> w_nibbles: array<vec4<u32>>;
var<storage, read> w_crumbs: array<vec2<u32>>;
var<storage, read> w_scales: array<vec4<u32>>; // 16 signed bytes a superblock
var<storage, read> w_supers: array<u32>;       // two d a word

fn w_bytes(g: u32) -> Bytes {
    let nibbles = nibble_bytes(w_nibbles[g]);
    let crumbs = crumb_bytes(w_crumbs[g]);
    let shift = vec4<u32>(4u);
    return Bytes(nibbles.low | (crumbs.low << shift), nibbles.high | (crumbs.high << shift));
}

fn w_pairs(g: u32) -> Pairs {
    let c = w_crumbs[g];
    let even = vec4<u32>(c << vec2<u32>(4u), c << vec2<u32>(2u));
    let odd = vec4<u32>(c >> vec2<u32>(4u), c >> vec2<u32>(6u));
    return wider_pairs(w_nibbles[g], even, odd, 0x00300030u);
}

fn w_affine(g: u32) -> vec4<f32> {
    let scales = w_scales[g >> 3u];
    let at = 2u * (g & 7u);
    let d = half_of(w_supers[g >> 4u], g >> 3u);
    let s = d * vec2<f32>(f32(signed_byte_of(scales, at)), f32(signed_byte_of(scales, at + 1u)));
    return vec4<f32>(s, -32.0 * s);
}
