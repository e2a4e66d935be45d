// The KV cache is a pool of pages of PAGE KV rows, the same ones in every layer. A sequence has a list of pages: its KV
// row t is in the list's page t / PAGE. Tiles of attention never cross the end of a page.

var<storage, read> pages: array<u32>; // the lists, one after the other

// The index in the pool of KV row t of the sequence whose list begins at `first_page`.
fn kv_place(first_page: u32, t: u32) -> u32 {
    return pages[first_page + t / PAGE] * PAGE + t % PAGE;
}

// The index in the pool of a tile; of the last KV row if the tile is past the end.
fn tile_place(first_page: u32, tile: u32, end: u32) -> u32 {
    return kv_place(first_page, min(tile, end - 1u));
}
