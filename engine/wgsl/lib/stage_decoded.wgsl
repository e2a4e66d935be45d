// The values of a tile's staged rows in f32, for rows of one matrix.

fn w_staged_group(tile: Tile, r: u32, group: u32) -> array<vec4<f32>, 8> {
    return w_decode(staged_at(tile, r, group));
}
