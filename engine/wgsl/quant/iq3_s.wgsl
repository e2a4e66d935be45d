// IQ3_S: d · (2s + 1) · ± magnitude, four bits of s for 32 values, d for 256. The bytes are 7.5 plus half the value.

const w_zero = 0u;
const w_units = vec4<f32>(1.0);
var<storage, read> w_entries: array<vec2<u32>>; // low bits
var<storage, read> w_signs: array<u32>;
var<storage, read> w_scales: array<u32>; // a superblock's 8 bytes of the entries' ninth bits, and 4 of two s each
var<storage, read> w_supers: array<u32>; // two d a word

fn w_bytes(g: u32) -> Bytes {
    let entries = w_entries[g];
    let bits = vec4<u32>(w_scales[3u * (g >> 3u) + ((g >> 2u) & 1u)] >> (8u * (g & 3u)));
    let low = bytes_of(entries.x) | ((bits << vec4<u32>(8u, 7u, 6u, 5u)) & vec4<u32>(256u));
    let high = bytes_of(entries.y) | ((bits << vec4<u32>(4u, 3u, 2u, 1u)) & vec4<u32>(256u));
    let first = vec4<u32>(w_GRID);
    return around_half_15(eight_fours(low + first, high + first), w_signs[g]);
}

fn w_pairs(g: u32) -> Pairs {
    return byte_pairs(w_bytes(g));
}

fn w_affine(g: u32) -> vec4<f32> {
    let s = pair_values((w_scales[3u * (g >> 3u) + 2u] >> (4u * (g & 7u))) & 15u).x + 0.5;
    let d = s * half_of(w_supers[g >> 4u], g >> 3u);
    return vec4<f32>(4.0 * d, 4.0 * d, -30.0 * d, -30.0 * d);
}
