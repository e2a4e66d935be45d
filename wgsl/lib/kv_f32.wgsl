// The latent cache in f32. A chunk is four values.

alias CacheChunk = vec4<f32>;

fn cache_packed(v: vec4<f32>) -> CacheChunk {
    return v;
}

fn cache_unpacked(c: CacheChunk) -> vec4<f32> {
    return c;
}
