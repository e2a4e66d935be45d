// IQ2_XS: d · (s + 1/2) / 4 · ± magnitude, four bits of s for 16 values, d for 256. The bytes are 64 plus the value.

const w_zero = 0u;
const w_units = vec4<f32>(1.0);
var<storage, read> w_words: array<vec2<u32>>;  // low bits of four entries; signs, and the entries' ninth bits
var<storage, read> w_scales: array<u32>;       // a byte of two s for each of four groups
var<storage, read> w_supers: array<u32>;       // two d a word

fn w_bytes(g: u32) -> Bytes {
    let words = w_words[g];
    let ninth = (vec4<u32>(words.y) >> vec4<u32>(17u, 19u, 21u, 23u)) & vec4<u32>(256u);
    return around_64(four_eights((bytes_of(words.x) | ninth) + vec4<u32>(w_GRID)), all_signs(words.y));
}

fn w_pairs(g: u32) -> Pairs {
    return byte_pairs(w_bytes(g));
}

fn w_affine(g: u32) -> vec4<f32> {
    let both = w_scales[g >> 2u] >> (8u * (g & 3u));
    let d = 0.25 * half_of(w_supers[g >> 4u], g >> 3u) * (nibble_values(both) + 0.5);
    return vec4<f32>(d, -64.0 * d);
}
