// An invocation's share of a tile of TILE_KV_ROWS KV rows, from a cache in blocks, as in lib/kv_share_blocks.wgsl, but
// with separate variables instead of loops, so that no compiler keeps the values in memory.

const CHUNKS = KV_ROW / 4u;       // of four values, of a KV row
const LATENT_PIECES = RANK / 16u; // of it
const KEY_PIECES = (KV_ROW - RANK) / 8u;
const LATENT_SHARE = (TILE_KV_ROWS * LATENT_PIECES + WORKGROUP - 1u) / WORKGROUP;
const KEY_SHARE = (TILE_KV_ROWS * KEY_PIECES + WORKGROUP - 1u) / WORKGROUP;
const LATENTS_EVEN = TILE_KV_ROWS * LATENT_PIECES % WORKGROUP == 0u; // whether all invocations load the same number
const KEYS_EVEN = TILE_KV_ROWS * KEY_PIECES % WORKGROUP == 0u;

// Up to these numbers, each piece has a line of its own: compilers that do not unroll loops, possibly Metal's, would
// keep the pieces in memory. No known model's cache needs more.
const LATENTS = 4u;
const KEYS = 2u;
const ALL_LATENTS = max(LATENT_SHARE, LATENTS);
const ALL_KEYS = max(KEY_SHARE, KEYS);

struct Share {
    latents: array<vec4<u32>, ALL_LATENTS>,
    scales: array<u32, ALL_LATENTS>, // for each the word with its block's scale
    keys: array<vec4<u32>, ALL_KEYS>,
}

var<storage, read> cache: array<vec4<u32>>;

// The start of the KV row to which piece k of a tile belongs, with `pieces` pieces in a KV row. `last` is the tile's
// last KV row.
fn row_at(k: u32, pieces: u32, place: u32, last: u32) -> u32 {
    return (place + min(k / pieces, last)) * (KV_WORDS / 4u);
}

fn latent_of(n: u32, place: u32, last: u32, local: u32) -> vec4<u32> {
    let k = local + n * WORKGROUP;
    return cache[row_at(k, LATENT_PIECES, place, last) + k % LATENT_PIECES];
}

fn scale_of(n: u32, place: u32, last: u32, local: u32) -> u32 {
    let k = local + n * WORKGROUP;
    let piece = k % LATENT_PIECES;
    return cache[row_at(k, LATENT_PIECES, place, last) + SCALES / 4u + piece / 16u][piece / 4u % 4u];
}

fn key_of(n: u32, place: u32, last: u32, local: u32) -> vec4<u32> {
    let k = local + n * WORKGROUP;
    return cache[row_at(k, KEY_PIECES, place, last) + LATENT_PIECES + k % KEY_PIECES];
}

// Loads this invocation's share of a tile at index `place`. A tile may extend past the end, or begin there, and the
// last invocations' shares may extend past the tile: the values loaded instead get no weight, or are not stored.
fn load_share(place: u32, tile: u32, end: u32, local: u32) -> Share {
    let last = min(end - 1u - min(tile, end - 1u), TILE_KV_ROWS - 1u); // of the tile
    var share: Share;
    share.latents[0] = latent_of(0u, place, last, local);
    share.scales[0] = scale_of(0u, place, last, local);
    if LATENT_SHARE > 1u { share.latents[1] = latent_of(1u, place, last, local); }
    if LATENT_SHARE > 1u { share.scales[1] = scale_of(1u, place, last, local); }
    if LATENT_SHARE > 2u { share.latents[2] = latent_of(2u, place, last, local); }
    if LATENT_SHARE > 2u { share.scales[2] = scale_of(2u, place, last, local); }
    if LATENT_SHARE > 3u { share.latents[3] = latent_of(3u, place, last, local); }
    if LATENT_SHARE > 3u { share.scales[3] = scale_of(3u, place, last, local); }
    for (var n = LATENTS; n < LATENT_SHARE; n++) {
        share.latents[n] = latent_of(n, place, last, local);
        share.scales[n] = scale_of(n, place, last, local);
    }
    share.keys[0] = key_of(0u, place, last, local);
    if KEY_SHARE > 1u { share.keys[1] = key_of(1u, place, last, local); }
    for (var n = KEYS; n < KEY_SHARE; n++) {
        share.keys[n] = key_of(n, place, last, local);
    }
    return share;
}

fn put_latent(n: u32, latent: vec4<u32>, scales: u32, first: u32, local: u32) {
    let k = local + n * WORKGROUP;
    if LATENTS_EVEN || k < TILE_KV_ROWS * LATENT_PIECES {
        let row = first + k / LATENT_PIECES;
        let piece = k % LATENT_PIECES;
        let scale = block_scale(scales, piece / 2u % 2u == 1u);
        // Every fourth piece is in the same banks, so each of these begins with a different chunk.
        let turn = piece / 4u % 4u;
        let once = select(latent, latent.yzwx, vec4<bool>((turn & 1u) == 1u));
        let words = select(once, once.zwxy, vec4<bool>((turn & 2u) == 2u));
        put_chunk(row, 4u * piece + turn, block_values(words.x, scale));
        put_chunk(row, 4u * piece + (turn + 1u) % 4u, block_values(words.y, scale));
        put_chunk(row, 4u * piece + (turn + 2u) % 4u, block_values(words.z, scale));
        put_chunk(row, 4u * piece + (turn + 3u) % 4u, block_values(words.w, scale));
    }
}

fn put_key(n: u32, key: vec4<u32>, first: u32, local: u32) {
    let k = local + n * WORKGROUP;
    if KEYS_EVEN || k < TILE_KV_ROWS * KEY_PIECES {
        let row = first + k / KEY_PIECES;
        let chunk = RANK / 4u + 2u * (k % KEY_PIECES);
        put_chunk(row, chunk, first_of(key));
        put_chunk(row, chunk + 1u, second_of(key));
    }
}

// Stores it in workgroup memory, with the tile's first KV row at index `first`.
fn put_share(share: Share, first: u32, local: u32) {
    put_latent(0u, share.latents[0], share.scales[0], first, local);
    if LATENT_SHARE > 1u { put_latent(1u, share.latents[1], share.scales[1], first, local); }
    if LATENT_SHARE > 2u { put_latent(2u, share.latents[2], share.scales[2], first, local); }
    if LATENT_SHARE > 3u { put_latent(3u, share.latents[3], share.scales[3], first, local); }
    for (var n = LATENTS; n < LATENT_SHARE; n++) {
        put_latent(n, share.latents[n], share.scales[n], first, local);
    }
    put_key(0u, share.keys[0], first, local);
    if KEY_SHARE > 1u { put_key(1u, share.keys[1], first, local); }
    for (var n = KEYS; n < KEY_SHARE; n++) {
        put_key(n, share.keys[n], first, local);
    }
}
