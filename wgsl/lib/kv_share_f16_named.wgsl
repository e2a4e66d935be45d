// What an invocation brings of a tile of TILE_KV_ROWS KV rows, from a cache in f16, as lib/kv_share_f16.wgsl, but without
// loops, so that no compiler keeps the values in memory.

const CHUNKS = KV_ROW / 4u;                                         // of four values, of a KV row
const SHARE = (TILE_KV_ROWS * CHUNKS + WORKGROUP - 1u) / WORKGROUP; // chunks that an invocation brings
const EVEN = TILE_KV_ROWS * CHUNKS % WORKGROUP == 0u;               // whether all invocations bring as many

// Fours of them, FOURS at least. Those up to FOURS each have a line of their own: compilers that do not unroll loops over
// them, as Metal's may not, would keep them in memory. Only caches of other models than are known need more.
const FOURS = 5u;
const ALL_FOURS = max((SHARE + 3u) / 4u, FOURS);

alias Four = array<vec4<f16>, 4>;
alias Share = array<Four, ALL_FOURS>;

var<storage, read> cache: array<vec4<f16>>;

// Chunk n of this invocation's, from a place on, of a tile whose last KV row is `last`.
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

// This invocation's share of a tile at a place. A tile may reach past the end, or lie there, and the last invocations'
// shares past the tile: what is loaded in place of that weighs nothing, or is not put anywhere.
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

// Puts it in workgroup memory, the tile's first KV row as number `first` there.
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
