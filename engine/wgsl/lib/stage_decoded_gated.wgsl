// The values of a tile's staged rows in f32, for alternating rows of gate and up.

fn w_staged_group(tile: Tile, r: u32, group: u32) -> array<vec4<f32>, 8> {
    if r % (2u * SIDE) < SIDE {
        return w_decode(staged_at(tile, r, group));
    }
    return w_up_decode(staged_at(tile, r, group));
}
