// An invocation's share of a tile of TILE_KV_ROWS KV rows, from a cache in f16.

const CHUNKS = KV_ROW / 4u;                                         // of four values, of a KV row
const SHARE = (TILE_KV_ROWS * CHUNKS + WORKGROUP - 1u) / WORKGROUP; // chunks that an invocation loads
const EVEN = TILE_KV_ROWS * CHUNKS % WORKGROUP == 0u;               // whether all invocations load the same number

alias Share = array<vec4<f16>, SHARE>;

var<storage, read> cache: array<vec4<f16>>;

// Loads this invocation's share of a tile at index `place`. A tile may extend past the end, or begin there, and the
// last invocations' shares may extend past the tile: the values loaded instead get no weight, or are not stored.
fn load_share(place: u32, tile: u32, end: u32, local: u32) -> Share {
    let last = min(end - 1u - min(tile, end - 1u), TILE_KV_ROWS - 1u); // of the tile
    var share: Share;
    for (var n = 0u; n < SHARE; n++) {
        let k = local + n * WORKGROUP;
        share[n] = cache[(place + min(k / CHUNKS, last)) * CHUNKS + k % CHUNKS];
    }
    return share;
}

// Stores it in workgroup memory, with the tile's first KV row at index `first`.
fn put_share(share: Share, first: u32, local: u32) {
    for (var n = 0u; n < SHARE; n++) {
        let k = local + n * WORKGROUP;
        if EVEN || k < TILE_KV_ROWS * CHUNKS {
            put_chunk(first + k / CHUNKS, k % CHUNKS, share[n]);
        }
    }
}
