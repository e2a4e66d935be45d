// Lines of the cache on their way to workgroup memory, for attention by matrices: each of CHUNKS chunks of four values.

var<storage, read> cache: array<vec4<f16>>;

// This invocation's share of a tile of SHARE chunks for each. A tile may reach past the end: what lies there weighs
// nothing.
fn load_share(tile: u32, end: u32, local: u32) -> array<vec4<f16>, SHARE> {
    var share: array<vec4<f16>, SHARE>;
    for (var n = 0u; n < SHARE; n++) {
        let k = local + n * WORKGROUP;
        share[n] = cache[min(tile + k / CHUNKS, end - 1u) * CHUNKS + k % CHUNKS];
    }
    return share;
}
