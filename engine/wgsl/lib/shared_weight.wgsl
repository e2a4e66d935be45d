// Tiles of matrix MATRICES, after the last, are of the shared experts' weight. The loop over the columns is there
// twice, once for each weight: a single loop that selected the weight at every load took almost twice as long.

fn multiply(tile: Tile, part: u32, local: u32) {
    if matrix_of(tile) < MATRICES {
        w_multiply(tile, part, local);
    } else {
        w_shared_multiply(Tile(0u, tile.row, tile.first, tile.places), part, local);
    }
}
