// The latent cache in blocks (src/kernels/kv_blocks.rs): a KV row of KV_WORDS words has LATENT words with four values
// of the latent each, as bytes, then the rotary key in f16, then, from word SCALES, the scales of the latent's blocks
// of 32. A chunk is four values: for the latent its word and the word with its scale, for the rotary key two words.

alias CacheElement = u32;
alias CacheChunk = vec2<u32>;

// Chunk k of the KV row at index `place` in the pool.
fn cache_chunk(place: u32, k: u32) -> CacheChunk {
    let row = place * KV_WORDS;
    let key = row + 2u * k - LATENT;
    if k < LATENT {
        return vec2<u32>(cache[row + k], cache[row + SCALES + k / 16u]);
    }
    return vec2<u32>(cache[key], cache[key + 1u]);
}

fn cache_unpacked(c: CacheChunk, k: u32) -> vec4<f32> {
    let halves = unpack2x16float(c.y);
    if k < LATENT {
        let scale = select(halves.x, halves.y, k / 8u % 2u == 1u) / 128.0;
        let bytes = (vec4<u32>(c.x) >> vec4<u32>(0u, 16u, 8u, 24u)) & vec4<u32>(0xffu);
        return (vec4<f32>(bytes) - 128.0) * scale;
    }
    return vec4<f32>(unpack2x16float(c.x), halves);
}
