// The group of a matrix of the weight that is group `group` of staged row r of a tile. Rows past the last repeat it, so
// that no load leaves the matrix.

fn w_staged_at(tile: Tile, matrix: u32, r: u32, group: u32) -> u32 {
    let row = min(matrix_row(tile, r), w_ROWS - 1u);
    return (matrix * w_ROWS + row) * w_GROUPS + group;
}
