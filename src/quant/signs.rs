//! Signs of values that are named by entries of a grid, eight to a byte: how GGML packs them, and how they are
//! regrouped for the GPU, so that those of the four values of any word come to stand at the bytes' lowest bits by one
//! shift.

use super::packing::bits_of_words;

/// The scale or other four bits beside seven signs of each entry: where those of entries 0 to 3 stand in a word of
/// signs.
const BESIDE: u32 = 25;

/// All eight signs of a code of seven: an even number of them is set.
pub fn eight_of(seven: u8) -> u8 {
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// Four codes of seven signs, and what stands above them.
pub fn codes_of(word: [u8; 4]) -> ([u8; 4], u8) {
    let word = u32::from_le_bytes(word);
    (std::array::from_fn(|entry| (word >> (7 * entry)) as u8 & 127), (word >> 28) as u8)
}

/// The arrangement `signs` of codes of seven signs, with a bit of `beside` in the place of each entry's eighth sign.
pub fn signs_beside(codes: [u8; 4], beside: u8) -> u32 {
    let bit = |entry: u32| u32::from(beside >> entry & 1) << (BESIDE + 2 * entry);
    (0..4).fold(bits_of_words(codes), |word, entry| word | bit(entry))
}

/// A magnitude under the sign `i` of a byte of signs.
pub fn signed(magnitude: f32, signs: u8, i: usize) -> f32 {
    if signs >> i & 1 == 0 { magnitude } else { -magnitude }
}
