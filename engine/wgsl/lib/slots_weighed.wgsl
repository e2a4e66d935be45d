// The weighted outputs of a row's selected experts, in the order of their slots: its last TOP_K of SLOTS.

var<storage, read> slot_weights: array<f32>; // [row][rank]
var<storage, read> slot_values: array<vec4<f32>>; // [row][slot][value]

fn from_slots(row: u32, k: u32) -> vec4<f32> {
    var sum = vec4<f32>(0.0);
    for (var rank = 0u; rank < TOP_K; rank++) {
        let slot = row * SLOTS + SLOTS - TOP_K + rank;
        sum += slot_weights[row * TOP_K + rank] * slot_values[slot * SLOT_PITCH + k];
    }
    return sum;
}
