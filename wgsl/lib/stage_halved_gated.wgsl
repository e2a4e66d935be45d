// Staged rows of gate and up in f16: what is read of a group, and what is made of it later. Rows are staged in pairs,
// of gate and of up, SIDE apart: an invocation brings both and need not ask which is its own.

fn first_raw(tile: Tile, r: u32, group: u32) -> array<vec4<u32>, 4> {
    return w_gate_raw(staged_at(tile, r, group));
}

fn second_raw(tile: Tile, r: u32, group: u32) -> array<vec4<u32>, 4> {
    return w_up_raw(staged_at(tile, r, group));
}

fn first_halves(raw: array<vec4<u32>, 4>) -> array<vec4<f16>, 8> {
    return w_gate_halves(raw);
}

fn second_halves(raw: array<vec4<u32>, 4>) -> array<vec4<f16>, 8> {
    return w_up_halves(raw);
}
