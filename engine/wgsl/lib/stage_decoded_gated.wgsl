// The values of a tile's staged rows in f32, for alternating rows of gate and up.

fn w_staged_group(tile: Tile, matrix: u32, r: u32, group: u32) -> array<vec4<f32>, 8> {
    if r % (2u * SIDE) < SIDE {
        return w_decode(w_staged_at(tile, matrix, r, group));
    }
    return w_up_decode(w_staged_at(tile, matrix, r, group));
}
