// An invocation's share of a tile of TILE_KV_ROWS KV rows, from a cache in blocks (lib/kv_blocks.wgsl): pieces of
// sixteen bytes, which are sixteen values of a latent or eight of a rotary key. They are converted to f16 when they are
// written to workgroup memory, so that they take few registers while they are loaded.

const CHUNKS = KV_ROW / 4u;       // of four values, of a KV row
const LATENT_PIECES = RANK / 16u; // of it
const KEY_PIECES = (KV_ROW - RANK) / 8u;
const LATENT_SHARE = (TILE_KV_ROWS * LATENT_PIECES + WORKGROUP - 1u) / WORKGROUP;
const KEY_SHARE = (TILE_KV_ROWS * KEY_PIECES + WORKGROUP - 1u) / WORKGROUP;
const LATENTS_EVEN = TILE_KV_ROWS * LATENT_PIECES % WORKGROUP == 0u; // whether all invocations load the same number
const KEYS_EVEN = TILE_KV_ROWS * KEY_PIECES % WORKGROUP == 0u;

struct Share {
    latents: array<vec4<u32>, LATENT_SHARE>,
    scales: array<u32, LATENT_SHARE>, // for each the word with its block's scale
    keys: array<vec4<u32>, KEY_SHARE>,
}

var<storage, read> cache: array<vec4<u32>>;

// Loads this invocation's share of a tile at index `place`. A tile may extend past the end, or begin there, and the
// last invocations' shares may extend past the tile: the values loaded instead get no weight, or are not stored.
fn load_share(place: u32, tile: u32, end: u32, local: u32) -> Share {
    let last = min(end - 1u - min(tile, end - 1u), TILE_KV_ROWS - 1u); // of the tile
    var share: Share;
    for (var n = 0u; n < LATENT_SHARE; n++) {
        let k = local + n * WORKGROUP;
        let piece = k % LATENT_PIECES;
        let row = (place + min(k / LATENT_PIECES, last)) * (KV_WORDS / 4u);
        share.latents[n] = cache[row + piece];
        share.scales[n] = cache[row + SCALES / 4u + piece / 16u][piece / 4u % 4u];
    }
    for (var n = 0u; n < KEY_SHARE; n++) {
        let k = local + n * WORKGROUP;
        let row = (place + min(k / KEY_PIECES, last)) * (KV_WORDS / 4u);
        share.keys[n] = cache[row + LATENT_PIECES + k % KEY_PIECES];
    }
    return share;
}

// Stores it in workgroup memory, with the tile's first KV row at index `first`.
fn put_share(share: Share, first: u32, local: u32) {
    for (var n = 0u; n < LATENT_SHARE; n++) {
        let k = local + n * WORKGROUP;
        if LATENTS_EVEN || k < TILE_KV_ROWS * LATENT_PIECES {
            let row = first + k / LATENT_PIECES;
            let piece = k % LATENT_PIECES;
            let scale = block_scale(share.scales[n], piece / 2u % 2u == 1u);
            // Every fourth piece is in the same banks, so each of these begins with a different chunk.
            let turn = piece / 4u % 4u;
            let once = select(share.latents[n], share.latents[n].yzwx, vec4<bool>((turn & 1u) == 1u));
            let words = select(once, once.zwxy, vec4<bool>((turn & 2u) == 2u));
            for (var i = 0u; i < 4u; i++) {
                put_chunk(row, 4u * piece + (turn + i) % 4u, block_values(words[i], scale));
            }
        }
    }
    for (var n = 0u; n < KEY_SHARE; n++) {
        let k = local + n * WORKGROUP;
        if KEYS_EVEN || k < TILE_KV_ROWS * KEY_PIECES {
            let row = first + k / KEY_PIECES;
            let chunk = RANK / 4u + 2u * (k % KEY_PIECES);
            put_chunk(row, chunk, first_of(share.keys[n]));
            put_chunk(row, chunk + 1u, second_of(share.keys[n]));
        }
    }
}
