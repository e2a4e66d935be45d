// Workgroups past the last block of rows rotate what follows the factors of the product in the vectors of a tile, the
// rotary parts of queries, and write it after the products. Returns whether the workgroup is one of them.

const QUADS = PAIRS / 2u; // of pairs

fn beside(at: vec3<u32>, local: u32) -> bool {
    if at.y < ROW_BLOCKS {
        return false;
    }
    let tile = tile_of(vec3<u32>(at.x, 0u, at.z));
    for (var n = local; n < tile.places * QUADS; n += WORKGROUP) {
        let place = n / QUADS;
        let k = n % QUADS;
        let row = tile.first + place;
        let pairs = x[input_at(tile, place) + FACTORS / 4u + k];
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
