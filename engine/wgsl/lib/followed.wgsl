// The matrices of a weight, of which there are MATRICES, are followed by that of another. The loop over the columns is
// there twice, once for each: with one loop that selects between both at every load, tiles took almost twice as long.

fn multiply(tile: Tile, part: u32, local: u32) {
    if tile.matrix < MATRICES {
        w_multiply(tile, part, local);
    } else {
        w_more_multiply(Tile(tile.matrix - MATRICES, tile.row, tile.first, tile.places), part, local);
    }
}
