// Signs of the values that entries of a grid stand for. Bit 8c + j of a group's signs is that of byte c of word j, so
// that a shift brings those of a word to the lowest bits of its bytes.

// Signs of which an entry stores seven: the eighth, byte 3 of its second word, makes the number of those set even. What
// the bits hold in their place is left out.
fn all_signs(stored: u32) -> u32 {
    let seven = stored & 0x55ffffffu;
    let pairs = seven ^ (seven >> 16u);
    let words = pairs ^ (pairs >> 8u);
    return seven | (((words ^ (words >> 1u)) & 0x55u) << 25u);
}

// The four bits that stand in the places of the eighth signs.
fn beside_signs(stored: u32) -> u32 {
    let apart = (stored >> 25u) & 0x55u;
    let pairs = (apart | (apart >> 1u)) & 0x33u;
    return (pairs | (pairs >> 2u)) & 15u;
}

// Bit 0 of every byte of the words: their signs.
fn signs_of_words(signs: u32) -> Bytes {
    let ones = vec4<u32>(0x01010101u);
    let all = vec4<u32>(signs);
    return Bytes((all >> vec4<u32>(0u, 1u, 2u, 3u)) & ones, (all >> vec4<u32>(4u, 5u, 6u, 7u)) & ones);
}

// Bytes of 64 and a magnitude become 64 and a value: 127 less the byte and one more.
fn around_64(bytes: Bytes, signs: u32) -> Bytes {
    let s = signs_of_words(signs);
    return Bytes((bytes.low ^ (s.low * 127u)) + s.low, (bytes.high ^ (s.high * 127u)) + s.high);
}

// Bytes of 7.5 and half a magnitude become 7.5 and half a value: 15 less the byte.
fn around_half_15(bytes: Bytes, signs: u32) -> Bytes {
    // The signs of words j and j + 4 in the nibbles of a byte, and a nibble of ones for each that is set.
    let both = ((vec4<u32>(signs) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(0x11111111u)) * 15u;
    let m = vec4<u32>(0x0f0f0f0fu);
    return Bytes(bytes.low ^ (both & m), bytes.high ^ ((both >> vec4<u32>(4u)) & m));
}
