// Values of a latent in blocks (lib/kv_blocks.wgsl), as f16: the byte in the last bits of 8 makes that byte / 128 larger,
// so nine less is the number that a scale is multiplied with, and exact.

// The scale of an even or of an odd block, of a word of both.
fn block_scale(scales: u32, odd: bool) -> f16 {
    let both = vec2<f16>(unpack2x16float(scales));
    return select(both.x, both.y, odd);
}

// The four values of a word.
fn block_values(word: u32, scale: f16) -> vec4<f16> {
    let first = vec2<f16>(unpack2x16float((word & 0x00ff00ffu) | 0x48004800u));
    let second = vec2<f16>(unpack2x16float(((word >> 8u) & 0x00ff00ffu) | 0x48004800u));
    return (vec4<f16>(first, second) - 9.0h) * scale;
}
