// The latent cache in f32. A chunk is four values.

alias CacheElement = vec4<f32>;
alias CacheChunk = vec4<f32>;

fn cache_packed(v: vec4<f32>) -> CacheElement {
    return v;
}

// Chunk k of the KV row at index `place` in the pool.
fn cache_chunk(place: u32, k: u32) -> CacheChunk {
    return cache[place * KV_CHUNKS + k];
}

fn cache_unpacked(c: CacheChunk, k: u32) -> vec4<f32> {
    return c;
}
