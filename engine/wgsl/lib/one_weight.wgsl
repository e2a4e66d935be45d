// All tiles are of the same weight, or of the same pair of gate and up.

fn multiply(tile: Tile, part: u32, local: u32) {
    w_multiply(tile, tile.matrix, part, local);
}
