// The second of two staged rows, SIDE apart, in f16, if the first belongs to gate and this one to up: the raw data of a
// group, and the values that are decoded from it later.

fn w_second_raw(group: u32) -> array<vec4<u32>, 4> {
    return w_up_raw(group);
}

fn w_second_halves(raw: array<vec4<u32>, 4>) -> array<vec4<f16>, 8> {
    return w_up_halves(raw);
}
