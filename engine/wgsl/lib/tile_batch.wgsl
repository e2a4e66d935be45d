// A tile of a product: the vectors of consecutive rows of the batch, and some rows of one matrix of a stack.

struct Tile {
    matrix: u32, // of the stack
    row: u32,    // first of the staged rows
    first: u32,  // row of the batch
    places: u32, // rows of the batch, at most TILE_TOKENS; 0 if all are past the last
}

fn tile_of(workgroup: vec3<u32>) -> Tile {
    let first = workgroup.x * TILE_TOKENS;
    let left = max(row_count(), first) - first;
    return Tile(workgroup.z, workgroup.y * TILE_ROWS, first, min(left, TILE_TOKENS));
}

// The vec4 at which the vector with index `place` in the tile starts.
fn input_at(tile: Tile, place: u32) -> u32 {
    return (tile.first + place) * X_PITCH + tile.matrix * X_STRIDE;
}

// The value at which the product of that vector starts.
fn output_at(tile: Tile, place: u32) -> u32 {
    return (tile.first + place) * Y_PITCH + tile.matrix * Y_STRIDE;
}
