// Values of four bits that are indices of bytes in a fixed table. Looking up each of the 32 values of a group takes
// longer than computing all of them at once: the bits of a group are in planes (src/quant/mod.rs), a plane of the
// table's bytes is a boolean function of the four planes of a group, and the eight planes are then turned into bytes.

// Bit 8c + j of plane k becomes bit k of byte c of word j: exchanges squares of 4, 2 and 1 bits.
fn bytes_of_planes(low: vec4<u32>, high: vec4<u32>) -> Bytes {
    let a = (low & vec4<u32>(0x0f0f0f0fu)) | ((high << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)); // words 0..3
    let b = ((low >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu)) | (high & vec4<u32>(0xf0f0f0f0u)); // words 4..7
    return Bytes(words_of_squares(a), words_of_squares(b));
}

// Squares of 4 bits, of planes k and k + 4 in word k, to four words of bytes.
fn words_of_squares(s: vec4<u32>) -> vec4<u32> {
    let two = vec2<u32>(2u);
    let a = (s.xy & vec2<u32>(0x33333333u)) | ((s.zw << two) & vec2<u32>(0xccccccccu));
    let b = ((s.xy >> two) & vec2<u32>(0x33333333u)) | (s.zw & vec2<u32>(0xccccccccu));
    return vec4<u32>(
        (a.x & 0x55555555u) | ((a.y << 1u) & 0xaaaaaaaau),
        ((a.x >> 1u) & 0x55555555u) | (a.y & 0xaaaaaaaau),
        (b.x & 0x55555555u) | ((b.y << 1u) & 0xaaaaaaaau),
        ((b.x >> 1u) & 0x55555555u) | (b.y & 0xaaaaaaaau),
    );
}

// The signed bytes of GGML's IQ4 formats: -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89 and 113.
fn uneven_bytes(b: vec4<u32>) -> Bytes {
    let any = b.x | b.y;
    let p6 = b.z & ~(b.w & ~any);
    let p5 = ~b.y ^ (b.x | ~b.w | ~(b.y | b.z));
    let p0 = ~b.w ^ (~p5 ^ ((b.z | ~any) & ~(b.w & ~p5)));
    let both = b.x & ~(~b.y ^ b.z);
    let p1 = b.z ^ (both | (b.z & b.w));
    let p2 = ~(p5 ^ b.x) ^ (p0 & ~p1);
    let p4 = ~b.x ^ (~b.w | ~(b.x ^ (p2 ^ any)));
    let p3 = both ^ ((p5 | p2) ^ p4);
    return bytes_of_planes(vec4<u32>(p0, p1, p2, p3), vec4<u32>(p4, p5, p6, ~b.w));
}

// Twice the values of floats of one sign bit, two of exponent and one of mantissa, plus 12: 0, 1, 2, 3, 4, 6, 8 and 12,
// and the same below zero.
fn small_float_bytes(b: vec4<u32>) -> Bytes {
    let p0 = b.x & ~b.z;
    let p4 = b.z & ~b.w;
    let odd = b.x & (b.z | b.w);
    let p1 = b.y ^ (odd | (b.y & b.z));
    let t = b.y ^ (b.w | ~p1);
    let p2 = odd ^ (t ^ (b.z | ~(t | ~odd)));
    let p3 = ~b.z | ~(p2 | ~(b.y ^ b.w));
    return bytes_of_planes(vec4<u32>(p0, p1, p2, p3), vec4<u32>(p4, 0u, 0u, 0u));
}
