// How attention by matrices finds tiles of KV rows. A tile comes to workgroup memory in chunks of four values.

const CHUNKS = KV_ROW / 4u; // of a KV row

// The place in the pool of a tile; of the last KV row where the tile lies past the end.
fn tile_place(first_page: u32, tile: u32, end: u32) -> u32 {
    return kv_place(first_page, min(tile, end - 1u));
}
