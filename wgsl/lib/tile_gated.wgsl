// The staged rows of a tile are sixteen of gate and the same sixteen of up in turn.

const GROUPS = w_gate_GROUPS;

// The row of gate or up that is staged row r of a tile.
fn gated_row(tile: Tile, r: u32) -> u32 {
    let staged = tile.row + r;
    return staged / 32u * 16u + staged % 16u;
}

// Group `group` of staged row r of a tile. Rows past the last repeat it, so that no load leaves the matrix.
fn staged_group(tile: Tile, r: u32, group: u32) -> array<vec4<f32>, 8> {
    let row = tile.matrix * w_gate_ROWS + min(gated_row(tile, r), w_gate_ROWS - 1u);
    if r % 32u < 16u {
        return w_gate_decode(row * w_gate_GROUPS + group);
    }
    return w_up_decode(row * w_gate_GROUPS + group);
}

// Leaves silu(gate · x) · (up · x) of a place and row `lane` of a pair of sixteens, gate's and up's.
fn leave(tile: Tile, place: u32, pair: u32, lane: u32, first: f32, second: f32) {
    let row = gated_row(tile, 32u * pair + lane);
    if row < w_gate_ROWS {
        y[output_at(tile, place) + row] = swiglu(first, second);
    }
}
