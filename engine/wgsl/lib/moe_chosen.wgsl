// The experts of a row of the batch that the step `route` selected.

var<storage, read> ids: array<u32>;     // [row][slot]
var<storage, read> weights: array<f32>; // [row][slot]

fn begin_choice(local: u32) {}

fn end_choice(local: u32) {}

fn expert_of(slot: u32) -> u32 {
    return ids[token * TOP_K + slot];
}

fn expert_weight(slot: u32) -> f32 {
    return weights[token * TOP_K + slot];
}

fn leave_choice(slot: u32) {}
