// An invocation's share of a tile of TILE_KV_ROWS KV rows, from a cache in f16, as in lib/kv_share_f16.wgsl, but with
// separate variables instead of loops, so that no compiler keeps the values in memory.

const CHUNKS = KV_ROW / 4u;                                         // of four values, of a KV row
const SHARE = (TILE_KV_ROWS * CHUNKS + WORKGROUP - 1u) / WORKGROUP; // chunks that an invocation loads
const EVEN = TILE_KV_ROWS * CHUNKS % WORKGROUP == 0u;               // whether all invocations load the same number

// The number of fours of chunks, at least FOURS. Up to FOURS, each has a line of its own: compilers that do not unroll
// loops, possibly Metal's, would keep the chunks in memory. No known model's cache needs more.
const FOURS = 5u;
const ALL_FOURS = max((SHARE + 3u) / 4u, FOURS);

alias Four = array<vec4<f16>, 4>;
alias Share = array<Four, ALL_FOURS>;

var<storage, read> cache: array<vec4<f16>>;

// This invocation's chunk n of a tile that begins at index `place` and whose last KV row is `last`.
fn chunk_of(n: u32, place: u32, last: u32, local: u32) -> vec4<f16> {
    let k = local + n * WORKGROUP;
    return cache[(place + min(k / CHUNKS, last)) * CHUNKS + k % CHUNKS];
}

fn four_of(n: u32, place: u32, last: u32, local: u32) -> Four {
    var four: Four;
    four[0] = chunk_of(n, place, last, local);
    if n + 1u < SHARE { four[1] = chunk_of(n + 1u, place, last, local); }
    if n + 2u < SHARE { four[2] = chunk_of(n + 2u, place, last, local); }
    if n + 3u < SHARE { four[3] = chunk_of(n + 3u, place, last, local); }
    return four;
}

// Loads this invocation's share of a tile at index `place`. A tile may extend past the end, or begin there, and the
// last invocations' shares may extend past the tile: the values loaded instead get no weight, or are not stored.
fn load_share(place: u32, tile: u32, end: u32, local: u32) -> Share {
    let last = min(end - 1u - min(tile, end - 1u), TILE_KV_ROWS - 1u); // of the tile
    var share: Share;
    share[0] = four_of(0u, place, last, local);
    if SHARE > 4u { share[1] = four_of(4u, place, last, local); }
    if SHARE > 8u { share[2] = four_of(8u, place, last, local); }
    if SHARE > 12u { share[3] = four_of(12u, place, last, local); }
    if SHARE > 16u { share[4] = four_of(16u, place, last, local); }
    for (var f = FOURS; f < ALL_FOURS; f++) {
        share[f] = four_of(4u * f, place, last, local);
    }
    return share;
}

fn put_one(n: u32, chunk: vec4<f16>, first: u32, local: u32) {
    let k = local + n * WORKGROUP;
    if n < SHARE && (EVEN || k < TILE_KV_ROWS * CHUNKS) {
        put_chunk(first + k / CHUNKS, k % CHUNKS, chunk);
    }
}

fn put_four(n: u32, four: Four, first: u32, local: u32) {
    put_one(n, four[0], first, local);
    put_one(n + 1u, four[1], first, local);
    put_one(n + 2u, four[2], first, local);
    put_one(n + 3u, four[3], first, local);
}

// Stores it in workgroup memory, with the tile's first KV row at index `first`.
fn put_share(share: Share, first: u32, local: u32) {
    put_four(0u, share[0], first, local);
    if SHARE > 4u { put_four(4u, share[1], first, local); }
    if SHARE > 8u { put_four(8u, share[2], first, local); }
    if SHARE > 12u { put_four(12u, share[3], first, local); }
    if SHARE > 16u { put_four(16u, share[4], first, local); }
    for (var f = FOURS; f < ALL_FOURS; f++) {
        let four = share[f];
        put_four(4u * f, four, first, local);
    }
}
