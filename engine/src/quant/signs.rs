//! The signs of the magnitudes of a grid's entries, eight to a byte: how GGML packs them, and how they are regrouped
//! for the GPU, so that one shift brings the signs of any word's four values to the lowest bits of the word's bytes.

use super::packing::bits_of_words;

/// The bit in a word of signs where the eighth sign of entry 0 belongs, and where another bit may be stored instead.
/// That of each following entry is two higher.
const BESIDE: u32 = 25;

/// All eight signs, given seven: an even number of them is set.
pub fn eight_of(seven: u8) -> u8 {
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// Four times seven signs, and the four bits above them.
pub fn codes_of(word: [u8; 4]) -> ([u8; 4], u8) {
    let word = u32::from_le_bytes(word);
    (std::array::from_fn(|entry| (word >> (7 * entry)) as u8 & 127), (word >> 28) as u8)
}

/// The arrangement `signs` of four times seven signs, with a bit of `beside` instead of each entry's eighth sign.
pub fn signs_beside(codes: [u8; 4], beside: u8) -> u32 {
    let bit = |entry: u32| u32::from(beside >> entry & 1) << (BESIDE + 2 * entry);
    (0..4).fold(bits_of_words(codes), |word, entry| word | bit(entry))
}

/// A magnitude with sign `i` of a byte of signs.
pub fn signed(magnitude: f32, signs: u8, i: usize) -> f32 {
    if signs >> i & 1 == 0 { magnitude } else { -magnitude }
}
