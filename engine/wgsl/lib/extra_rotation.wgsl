// The vectors of a product by tiles are queries: it multiplies their first NOPE values, and the rest is rotated and
// written after the products. Workgroups past the last block of rows do that. Returns whether this is one of them.

const ROTARY_CHUNKS = PAIRS / 2u; // of two pairs

fn extra_work(at: vec3<u32>, local: u32) -> bool {
    if at.y < ROW_BLOCKS {
        return false;
    }
    let tile = tile_of(vec3<u32>(at.x, 0u, at.z));
    for (var n = local; n < tile.places * ROTARY_CHUNKS; n += WORKGROUP) {
        let place = n / ROTARY_CHUNKS;
        let k = n % ROTARY_CHUNKS;
        let row = tile.first + place;
        let pairs = x[input_at(tile, place) + NOPE / 4u + k];
        let first = rotated(pairs.xy, row, 2u * k);
        let second = rotated(pairs.zw, row, 2u * k + 1u);
        let to = output_at(tile, place) + w_ROWS + 4u * k;
        y[to] = first.x;
        y[to + 1u] = first.y;
        y[to + 2u] = second.x;
        y[to + 3u] = second.y;
    }
    return true;
}
