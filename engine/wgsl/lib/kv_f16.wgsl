// The latent cache in f16. A chunk is four values.

alias CacheElement = vec2<u32>;
alias CacheChunk = vec2<u32>;

fn cache_packed(v: vec4<f32>) -> CacheElement {
    let held = in_half_range(v);
    return vec2<u32>(pack2x16float(held.xy), pack2x16float(held.zw));
}

// Chunk k of the KV row at index `place` in the pool.
fn cache_chunk(place: u32, k: u32) -> CacheChunk {
    return cache[place * KV_CHUNKS + k];
}

fn cache_unpacked(c: CacheChunk, k: u32) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(c.x), unpack2x16float(c.y));
}
