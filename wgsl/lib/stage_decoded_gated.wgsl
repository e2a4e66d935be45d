// Staged rows of gate and up in f32.

fn staged_group(tile: Tile, r: u32, group: u32) -> array<vec4<f32>, 8> {
    if r % (2u * SIDE) < SIDE {
        return w_gate_decode(staged_at(tile, r, group));
    }
    return w_up_decode(staged_at(tile, r, group));
}
