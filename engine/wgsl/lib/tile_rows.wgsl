// The staged rows of a tile are rows of one matrix.

// The row of the matrix that is staged row r of a tile.
fn matrix_row(tile: Tile, r: u32) -> u32 {
    return tile.row + r;
}

// Stores the products of vector `place` with rows `lane` and SIDE + `lane` of a pair of SIDE rows each.
fn leave(tile: Tile, place: u32, pair: u32, lane: u32, first: f32, second: f32) {
    let row = tile.row + 2u * SIDE * pair + lane;
    let to = output_at(tile, place) + row;
    if row < w_ROWS {
        y[to] = select(first, y[to] + first, ACCUMULATE);
    }
    if row + SIDE < w_ROWS {
        y[to + SIDE] = select(second, y[to + SIDE] + second, ACCUMULATE);
    }
}
