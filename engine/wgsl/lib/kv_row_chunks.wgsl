// Writes a KV row chunk by chunk, for caches in f16 and f32.

var<storage, read_write> cache: array<CacheElement>;

// Writes the KV row of a row of the batch to index `place` in the pool. Multiplies the latent with `scale`.
fn write_chunks(row: u32, place: u32, scale: f32, local: u32) {
    for (var k = local; k < CHUNKS; k += WORKGROUP) {
        if k < LATENT {
            cache[place * KV_CHUNKS + k] = cache_packed(latent_chunk(row, k, scale));
        } else {
            cache[place * KV_CHUNKS + k] = cache_packed(rotated_chunk(row, k));
        }
    }
}
