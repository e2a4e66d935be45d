// Makes f16 from bits.

// The factor on weights: some drivers flush f16 below 6e-5 to zero.
const WEIGHT_UNIT = 16.0;

// The two f16 of a word.
fn halves_of(word: u32) -> vec2<f16> {
    return vec2<f16>(unpack2x16float(word));
}

// Bytes 0, 2, 1 and 3 of a word, plus 1024.
fn bytes_above_1024(word: u32) -> vec4<f16> {
    let even = (word & 0x00ff00ffu) | 0x64006400u;
    let odd = ((word >> 8u) & 0x00ff00ffu) | 0x64006400u;
    return vec4<f16>(halves_of(even), halves_of(odd));
}
