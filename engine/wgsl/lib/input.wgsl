// The input of a product without a norm. If INPUT_SLOTS is not 0, that many vectors of SLOT_GROUPS groups each and the
// vector after them form one: the selected experts' and the shared ones'.

var<storage, read> x: array<vec4<f32>>;

fn input(column: u32, start: u32, at: u32) -> vec4<f32> {
    if INPUT_SLOTS == 0u {
        return x[start + at];
    }
    let slot = min(at / (8u * SLOT_GROUPS), INPUT_SLOTS);
    return x[start + slot * X_STRIDE + at - slot * 8u * SLOT_GROUPS];
}

fn input_staged(local: u32) {}

fn column_factor(column: u32, team: Team) -> f32 {
    return 1.0;
}
