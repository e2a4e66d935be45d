// Staged rows of one matrix in f16: what is read of a group, and what is made of it later. Rows are staged in pairs,
// SIDE apart.

fn first_raw(tile: Tile, r: u32, group: u32) -> array<vec4<u32>, 4> {
    return w_raw(staged_at(tile, r, group));
}

fn second_raw(tile: Tile, r: u32, group: u32) -> array<vec4<u32>, 4> {
    return w_raw(staged_at(tile, r, group));
}

fn first_halves(raw: array<vec4<u32>, 4>) -> array<vec4<f16>, 8> {
    return w_halves(raw);
}

fn second_halves(raw: array<vec4<u32>, 4>) -> array<vec4<f16>, 8> {
    return w_halves(raw);
}
