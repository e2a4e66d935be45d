// Every tile is of one weight, or of one pair.

fn multiply(tile: Tile, part: u32, local: u32) {
    w_multiply(tile, part, local);
}
