// IQ3_XXS: d · (s + 1/2) / 2 · ± magnitude, four bits of s for 32 values, d for 256. The bytes are 64 plus the value.

const w_zero = 0u;
const w_units = vec4<f32>(1.0);
var<storage, read> w_entries: array<vec2<u32>>;
var<storage, read> w_signs: array<u32>;  // s beside them
var<storage, read> w_supers: array<u32>; // two d a word

fn w_bytes(g: u32) -> Bytes {
    let entries = w_entries[g];
    let first = vec4<u32>(w_GRID);
    return around_64(eight_fours(bytes_of(entries.x) + first, bytes_of(entries.y) + first), all_signs(w_signs[g]));
}

fn w_pairs(g: u32) -> Pairs {
    return byte_pairs(w_bytes(g));
}

fn w_affine(g: u32) -> vec4<f32> {
    let s = pair_values(beside_signs(w_signs[g])).x + 0.5;
    let d = 0.5 * s * half_of(w_supers[g >> 4u], g >> 3u);
    return vec4<f32>(d, d, -64.0 * d, -64.0 * d);
}
