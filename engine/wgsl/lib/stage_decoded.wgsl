// The values of a tile's staged rows in f32, for rows of one matrix.

fn w_staged_group(tile: Tile, matrix: u32, r: u32, group: u32) -> array<vec4<f32>, 8> {
    return w_decode(w_staged_at(tile, matrix, r, group));
}
