// IQ2_S: d · (s + 1/2) / 4 · ± magnitude, four bits of s for 16 values, d for 256. The bytes are 64 plus the value.

const w_zero = 0u;
const w_units = vec4<f32>(1.0);
var<storage, read> w_words: array<vec2<u32>>;  // low bits of four entries; signs
var<storage, read> w_scales: array<vec2<u32>>; // four groups' bytes of the entries' high bits, then of two s
var<storage, read> w_supers: array<u32>;       // two d a word

fn w_bytes(g: u32) -> Bytes {
    let words = w_words[g];
    let bits = w_scales[g >> 2u].x >> (8u * (g & 3u));
    let high = (vec4<u32>(bits) << vec4<u32>(8u, 6u, 4u, 2u)) & vec4<u32>(0x300u);
    return around_64(four_eights((bytes_of(words.x) | high) + vec4<u32>(w_GRID)), words.y);
}

fn w_pairs(g: u32) -> Pairs {
    return byte_pairs(w_bytes(g));
}

fn w_affine(g: u32) -> vec4<f32> {
    let both = w_scales[g >> 2u].y >> (8u * (g & 3u));
    let d = 0.25 * half_of(w_supers[g >> 4u], g >> 3u) * (nibble_values(both) + 0.5);
    return vec4<f32>(d, -64.0 * d);
}
