// Signs of the magnitudes of a grid's entries. Bit 8c + j of a group's signs is that of byte c of word j, so that one
// shift brings the signs of a word to the lowest bits of its bytes.

// All signs of entries that store seven: the eighth, of byte 3 of the second word, makes the number of set signs even.
// The other bits that are stored instead of it are ignored.
fn all_signs(stored: u32) -> u32 {
    let seven = stored & 0x55ffffffu;
    let pairs = seven ^ (seven >> 16u);
    let words = pairs ^ (pairs >> 8u);
    return seven | (((words ^ (words >> 1u)) & 0x55u) << 25u);
}

// The four bits that are stored instead of the eighth signs.
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

// 64 + magnitude becomes 64 + value: 127 - byte + 1 if the sign is set.
fn around_64(bytes: Bytes, signs: u32) -> Bytes {
    let s = signs_of_words(signs);
    return Bytes((bytes.low ^ (s.low * 127u)) + s.low, (bytes.high ^ (s.high * 127u)) + s.high);
}

// 7.5 + magnitude / 2 becomes 7.5 + value / 2: 15 - byte if the sign is set.
fn around_half_15(bytes: Bytes, signs: u32) -> Bytes {
    // The signs of words j and j + 4 in the nibbles of a byte, and a nibble of ones for each that is set.
    let both = ((vec4<u32>(signs) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(0x11111111u)) * 15u;
    let m = vec4<u32>(0x0f0f0f0fu);
    return Bytes(bytes.low ^ (both & m), bytes.high ^ ((both >> vec4<u32>(4u)) & m));
}
