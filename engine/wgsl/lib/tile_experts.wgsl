// A tile of a product: the vectors of slots of one expert, and some rows of its matrix. INPUT_SHARE slots of a row of
// the batch share one vector of the input. Every slot has its own vector of the output.

struct Tile {
    matrix: u32, // expert
    row: u32,    // first of the staged rows
    first: u32,  // index in the slots, which are ordered by expert
    places: u32, // slots, at most TILE_TOKENS; 0 in a tile that is not needed
}

var<storage, read> slots: array<u32>;
var<storage, read> tiles: array<vec4<u32>>;

fn tile_of(workgroup: vec3<u32>) -> Tile {
    let at = tile_and_block(workgroup);
    let tile = tiles[at.x];
    return Tile(tile.x, at.y * TILE_ROWS, tile.y, tile.z);
}

// The vec4 at which the vector with index `place` in the tile starts.
fn input_at(tile: Tile, place: u32) -> u32 {
    return slots[tile.first + place] / INPUT_SHARE * X_STRIDE;
}

// The value at which the product of that vector starts.
fn output_at(tile: Tile, place: u32) -> u32 {
    return slots[tile.first + place] * Y_STRIDE;
}
