// Bit tricks shared by the weight formats. A word holds four consecutive values, one to a byte.

// The 32 values of a group: 0..15 and 16..31.
struct Bytes {
    low: vec4<u32>,
    high: vec4<u32>,
}

// The same values as unsigned numbers below 1024, two to a word: values 4j and 4j + 2 of word j are an even pair,
// values 4j + 1 and 4j + 3 an odd one. With the exponent of 1024 the halves of a word are f16, which are almost free as
// operands, whereas converting integers is slow on some GPUs. A number may contain a power of two, which the format
// defines, because shifts are avoided where possible.
struct Pairs {
    low_even: vec4<u32>,  // of words 0..3
    low_odd: vec4<u32>,
    high_even: vec4<u32>, // of words 4..7
    high_odd: vec4<u32>,
}

// 1024 and 1024 in f16.
const PAIR_OF_1024 = 0x64006400u;

// The numbers of a pair without further bits.
fn pair_values(pair: u32) -> vec2<f32> {
    return unpack2x16float(pair | PAIR_OF_1024) - 1024.0;
}

// The same for signed bytes.
fn signed_pair_values(pair: u32) -> vec2<f32> {
    return unpack2x16float(pair ^ (PAIR_OF_1024 | 0x00800080u)) - 1152.0;
}

// The f16 at index i of an array of f16 pairs, given the pair.
fn half_of(pair: u32, i: u32) -> f32 {
    let both = unpack2x16float(pair);
    return select(both.x, both.y, (i & 1u) == 1u);
}

// Bytes as pairs.
fn byte_pairs(b: Bytes) -> Pairs {
    let m = vec4<u32>(0x00ff00ffu);
    let shift = vec4<u32>(8u);
    return Pairs(b.low & m, (b.low >> shift) & m, b.high & m, (b.high >> shift) & m);
}

// The 32 four-bit values of a group: byte i of the nibbles holds value i low and value i + 16 high.
fn nibble_bytes(n: vec4<u32>) -> Bytes {
    let m = vec4<u32>(0x0f0f0f0fu);
    return Bytes(n & m, (n >> vec4<u32>(4u)) & m);
}

// The same in pairs, values 16 to 31 times 16.
fn nibble_pairs(n: vec4<u32>) -> Pairs {
    let low = vec4<u32>(0x000f000fu);
    let high = vec4<u32>(0x00f000f0u);
    let odd = n >> vec4<u32>(8u);
    return Pairs(n & low, odd & low, n & high, odd & high);
}

// Pairs of nibbles with the bits above them. The mask is for values 0 to 15.
fn wider_pairs(nibbles: vec4<u32>, even: vec4<u32>, odd: vec4<u32>, mask: u32) -> Pairs {
    let p = nibble_pairs(nibbles);
    let low = vec4<u32>(mask);
    let high = vec4<u32>(mask << 4u);
    return Pairs(
        p.low_even | (even & low), p.low_odd | (odd & low),
        p.high_even | (even & high), p.high_odd | (odd & high));
}

// The 32 two-bit values of a group: byte i of the crumbs holds values i, i + 8, i + 16, i + 24.
fn crumb_bytes(c: vec2<u32>) -> Bytes {
    let m = vec4<u32>(0x03030303u);
    let low = vec4<u32>(c, c >> vec2<u32>(2u));
    return Bytes(low & m, (low >> vec4<u32>(4u)) & m);
}

// The same in pairs, eight values each times 1, 4, 16 and 64.
fn crumb_pairs(c: vec2<u32>) -> Pairs {
    let low = vec4<u32>(0x00030003u, 0x00030003u, 0x000c000cu, 0x000c000cu);
    let high = vec4<u32>(0x00300030u, 0x00300030u, 0x00c000c0u, 0x00c000c0u);
    let odd = c >> vec2<u32>(8u);
    return Pairs(c.xyxy & low, odd.xyxy & low, c.xyxy & high, odd.xyxy & high);
}

// The 32 five-bit values of a group: nibbles, and the fifth bits: bit 8c + j is that of byte c of word j.
fn five_bit_bytes(nibbles: vec4<u32>, bits: u32) -> Bytes {
    let n = nibble_bytes(nibbles);
    let b = vec4<u32>(bits);
    let m = vec4<u32>(0x10101010u);
    return Bytes(n.low | ((b << vec4<u32>(4u, 3u, 2u, 1u)) & m), n.high | ((b >> vec4<u32>(0u, 1u, 2u, 3u)) & m));
}

// The same in pairs, values 16 to 31 times 16.
fn five_bit_pairs(nibbles: vec4<u32>, bits: u32) -> Pairs {
    let b = vec4<u32>(bits);
    return wider_pairs(nibbles, b << vec4<u32>(4u, 3u, 2u, 1u), b >> vec4<u32>(4u, 5u, 6u, 7u), 0x00100010u);
}

// The four bytes of a word.
fn bytes_of(word: u32) -> vec4<u32> {
    return (vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(0xffu);
}

// The two nibbles of a byte. Bits above the byte are ignored.
fn nibble_values(byte: u32) -> vec2<f32> {
    return pair_values((byte & 0x0fu) | ((byte & 0xf0u) << 12u));
}

// The two bytes of group g of a superblock, as a pair, given the word with those of two groups.
fn two_bytes(word: u32, g: u32) -> u32 {
    return (word >> (8u * (g & 1u))) & 0x00ff00ffu;
}

// Byte i (0..15) of 16 bytes.
fn byte_of(v: vec4<u32>, i: u32) -> u32 {
    return (word_of(v, i >> 2u) >> (8u * (i & 3u))) & 0xffu;
}

// Signed byte i (0..15) of 16 bytes.
fn signed_byte_of(v: vec4<u32>, i: u32) -> i32 {
    return extractBits(bitcast<i32>(word_of(v, i >> 2u)), 8u * (i & 3u), 8u);
}

// Scale and minimum j (0..7) of a Q4_K or Q5_K superblock: six bits each, packed in 12 bytes after the two f16 (ggml
// get_scale_min_k4).
fn scale_min(s: vec4<u32>, j: u32) -> vec2<u32> {
    if j < 4u {
        return vec2<u32>(byte_of(s, 4u + j) & 63u, byte_of(s, 8u + j) & 63u);
    }
    let both = byte_of(s, 8u + j);
    let scale = (both & 15u) | ((byte_of(s, j) >> 6u) << 4u);
    let minimum = (both >> 4u) | ((byte_of(s, 4u + j) >> 6u) << 4u);
    return vec2<u32>(scale, minimum);
}
