// IQ2_XS: d · (s + 1/2) / 4 · ± magnitude, four bits of s for 16 values, d for 256. The bytes are 64 and the value.

const w_zero = 0u;
var<storage, read> w_words: array<vec2<u32>>;  // low bits of four entries; signs, and the entries' ninth bits
var<storage, read> w_scales: array<vec2<u32>>; // 8 bytes a superblock, two s each
var<storage, read> w_supers: array<u32>;       // two d a word

fn w_bytes(g: u32) -> Bytes {
    let words = w_words[g];
    let ninth = (vec4<u32>(words.y) >> vec4<u32>(17u, 19u, 21u, 23u)) & vec4<u32>(256u);
    return around_64(four_eights((bytes_of(words.x) | ninth) + vec4<u32>(w_GRID)), all_signs(words.y));
}

fn w_affine(g: u32) -> vec4<f32> {
    let both = w_scales[g >> 3u][(g >> 2u) & 1u] >> (8u * (g & 3u));
    let s = vec2<f32>(f32(2u * (both & 15u) + 1u), f32(2u * ((both >> 4u) & 15u) + 1u));
    let d = 0.125 * half_of(w_supers[g >> 4u], g >> 3u) * s;
    return vec4<f32>(d, -64.0 * d);
}
