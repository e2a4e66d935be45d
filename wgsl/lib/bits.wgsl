// Bit tricks shared by the weight formats. A word holds four consecutive values, one to a byte.

// The 32 values of a group: 0..15 and 16..31.
struct Bytes {
    low: vec4<u32>,
    high: vec4<u32>,
}

// The f16 at index i of an array of f16 pairs, given the pair.
fn half_of(pair: u32, i: u32) -> f32 {
    return unpack2x16float(pair >> (16u * (i & 1u))).x;
}

// The 32 four-bit values of a group: byte i of the nibbles holds value i low and value i + 16 high.
fn nibble_bytes(n: vec4<u32>) -> Bytes {
    let m = vec4<u32>(0x0f0f0f0fu);
    return Bytes(n & m, (n >> vec4<u32>(4u)) & m);
}

// The 32 two-bit values of a group: byte i of the crumbs holds values i, i + 8, i + 16, i + 24.
fn crumb_bytes(c: vec2<u32>) -> Bytes {
    let m = vec4<u32>(0x03030303u);
    let low = vec4<u32>(c, c >> vec2<u32>(2u));
    return Bytes(low & m, (low >> vec4<u32>(4u)) & m);
}

// One bit of each of 16 values, given in order from bit 0 on: the product lays four copies of four bits
// seven apart, so that bit j comes to stand at bit 8j.
fn bit_bytes(bits: u32) -> vec4<u32> {
    let fours = (vec4<u32>(bits) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u);
    return (fours * 0x00204081u) & vec4<u32>(0x01010101u);
}

// The 32 five-bit values of a group: nibbles, and the fifth bits.
fn five_bit_bytes(nibbles: vec4<u32>, bits: u32) -> Bytes {
    let n = nibble_bytes(nibbles);
    let shift = vec4<u32>(4u);
    return Bytes(n.low | (bit_bytes(bits) << shift), n.high | (bit_bytes(bits >> 16u) << shift));
}

// Byte i (0..15) of 16 bytes.
fn byte_of(v: vec4<u32>, i: u32) -> u32 {
    return (v[i >> 2u] >> (8u * (i & 3u))) & 0xffu;
}

// The four bytes of a word.
fn bytes_of(word: u32) -> vec4<u32> {
    return (vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(0xffu);
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
