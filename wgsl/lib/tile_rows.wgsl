// The staged rows of a tile are rows of one matrix.

const GROUPS = w_GROUPS;

// Group `group` of staged row r of a tile. Rows past the last repeat it, so that no load leaves the matrix.
fn staged_group(tile: Tile, r: u32, group: u32) -> array<vec4<f32>, 8> {
    let row = min(tile.row + r, w_ROWS - 1u);
    return w_decode((tile.matrix * w_ROWS + row) * w_GROUPS + group);
}

// Leaves the products of a place with staged rows `lane` and 16 + lane of a pair of sixteens.
fn leave(tile: Tile, place: u32, pair: u32, lane: u32, first: f32, second: f32) {
    let row = tile.row + 32u * pair + lane;
    let to = output_at(tile, place) + row;
    if row < w_ROWS {
        y[to] = select(first, y[to] + first, ACCUMULATE);
    }
    if row + 16u < w_ROWS {
        y[to + 16u] = select(second, y[to + 16u] + second, ACCUMULATE);
    }
}
