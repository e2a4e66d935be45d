// The staged rows of a tile alternate between SIDE rows of gate and SIDE of up, so that one invocation has the sums of
// both.

// The row of gate or up that is staged row r of a tile.
fn matrix_row(tile: Tile, r: u32) -> u32 {
    let staged = tile.row + r;
    return staged / (2u * SIDE) * SIDE + staged % SIDE;
}

// A value of the output. LIMIT_TO_F16: the next product may multiply f16.
fn gated(v: f32) -> f32 {
    return select(v, in_half_range(vec4<f32>(v)).x, LIMIT_TO_F16);
}

// Stores silu(gate · x) · (up · x) of vector `place` and row `lane` of a pair: SIDE rows of gate and SIDE of up.
fn leave(tile: Tile, place: u32, pair: u32, lane: u32, first: f32, second: f32) {
    let row = matrix_row(tile, 2u * SIDE * pair + lane);
    if row < w_ROWS {
        y[output_at(tile, place) + row] = gated(swiglu(first, second));
    }
}
