// Tiles of matrices below MATRICES are of one weight, or of one pair, and those of matrix MATRICES are of another. The
// loop over the columns is there twice, once for each: with one loop that selects between both at every load, it took
// almost twice as long.

fn multiply(tile: Tile, part: u32, local: u32) {
    if matrix_of(tile) < MATRICES {
        w_multiply(tile, part, local);
    } else {
        w_more_multiply(Tile(0u, tile.row, tile.first, tile.places), part, local);
    }
}
