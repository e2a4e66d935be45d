// How attention by matrices brings KV rows to workgroup memory, in chunks of four values.

const CHUNKS = KV_ROW / 4u; // of a KV row

var<storage, read> cache: array<vec4<f16>>;

// This invocation's share of a tile at a place, SHARE chunks. A tile may reach past the end, or lie there: what is
// loaded in place of that weighs nothing.
fn load_share(place: u32, tile: u32, end: u32, local: u32) -> array<vec4<f16>, SHARE> {
    let last = end - 1u - min(tile, end - 1u); // of the tile
    var share: array<vec4<f16>, SHARE>;
    for (var n = 0u; n < SHARE; n++) {
        let k = local + n * WORKGROUP;
        share[n] = cache[(place + min(k / CHUNKS, last)) * CHUNKS + k % CHUNKS];
    }
    return share;
}
