// Values of a latent in blocks (lib/kv_blocks.wgsl), as f16: the byte in the last bits of 8.0 adds byte / 128, so
// subtracting 9 gives exactly the number that is multiplied by the scale.

// The scale of an even or odd block, from a word with both.
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
