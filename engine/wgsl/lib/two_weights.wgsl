// Tiles of matrix MATRICES, after the last, are of another weight. The loop over the columns is written twice, once for
// each weight: a single loop that selected the weight at every load took almost twice as long.

fn multiply(tile: Tile, part: u32, local: u32) {
    let matrix = matrix_of(tile);
    if matrix < MATRICES {
        w_multiply(tile, matrix, part, local);
    } else {
        w_other_multiply(tile, 0u, part, local);
    }
}
