// Bit tricks shared by the weight formats. A word holds four consecutive values, one to a byte.

// The f16 at index i of an array of f16 pairs, given the pair.
fn half_of(pair: u32, i: u32) -> f32 {
    return select(unpack2x16float(pair).x, unpack2x16float(pair).y, (i & 1u) == 1u);
}

// The 32 four-bit values of a group: byte i of the nibbles holds value i low and value i + 16 high.
fn nibble_words(n: vec4<u32>) -> array<u32, 8> {
    let low = n & vec4<u32>(0x0f0f0f0fu);
    let high = (n >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);
    return array<u32, 8>(low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w);
}

// The 32 two-bit values of a group: byte i of the crumbs holds values i, i + 8, i + 16, i + 24.
fn crumb_words(c: vec2<u32>) -> array<u32, 8> {
    let m = vec2<u32>(0x03030303u);
    let a = c & m;
    let b = (c >> vec2<u32>(2u)) & m;
    let d = (c >> vec2<u32>(4u)) & m;
    let e = (c >> vec2<u32>(6u)) & m;
    return array<u32, 8>(a.x, a.y, b.x, b.y, d.x, d.y, e.x, e.y);
}

// The bits of values 4k..4k+3, one to a byte: the product lays four copies of the nibble seven bits
// apart, so that bit j comes to stand at bit 8j.
fn bit_word(bits: u32, k: u32) -> u32 {
    return (((bits >> (4u * k)) & 15u) * 0x00204081u) & 0x01010101u;
}

// Byte i (0..15) of 16 bytes.
fn byte_of(v: vec4<u32>, i: u32) -> u32 {
    return (v[i >> 2u] >> (8u * (i & 3u))) & 0xffu;
}

// Signed byte i (0..15) of 16 bytes.
fn signed_byte_of(v: vec4<u32>, i: u32) -> i32 {
    return extractBits(bitcast<i32>(v[i >> 2u]), 8u * (i & 3u), 8u);
}

// Scale and minimum j (0..7) of a Q4_K or Q5_K superblock: six bits each, packed in 12 bytes behind
// the two f16 (ggml get_scale_min_k4).
fn scale_min(s: vec4<u32>, j: u32) -> vec2<u32> {
    if j < 4u {
        return vec2<u32>(byte_of(s, 4u + j) & 63u, byte_of(s, 8u + j) & 63u);
    }
    let both = byte_of(s, 8u + j);
    let scale = (both & 15u) | ((byte_of(s, j) >> 6u) << 4u);
    let minimum = (both >> 4u) | ((byte_of(s, 4u + j) >> 6u) << 4u);
    return vec2<u32>(scale, minimum);
}
// The 32 five-bit values of a group: nibbles, and the fifth bits.
fn five_bit_words(nibbles: vec4<u32>, bits: u32) -> array<u32, 8> {
    var words = nibble_words(nibbles);
    for (var k = 0u; k < 8u; k++) {
        words[k] |= bit_word(bits, k) << 4u;
    }
    return words;
}
