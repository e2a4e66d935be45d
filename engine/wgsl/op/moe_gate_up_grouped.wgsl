// The first half of the selected experts and of the shared experts, as in op/moe_gate_up.wgsl and with bit-identical
// results, for batches of more rows: a workgroup computes rows of one expert for all slots that selected it, PLACES of
// them at a time. A team has one row of either matrix. A lane decodes a group of it once for all of these slots. The
// shared experts' workgroups come first.

var<storage, read> weights: array<f32>;  // [row][slot]
var<storage, read_write> y: array<f32>;  // the output, whose vectors are Y_STRIDE apart

var<private> first_place: u32; // of the tile, in `found`

// The same group of a row of gate and of up.
struct GatedGroups {
    gate: Decoded,
    up: Decoded,
}

// The products of a group of either matrix with the staged group of a place.
fn gated_products(both: GatedGroups, place: u32, g: u32) -> vec4<f32> {
    let x = group_of_place(place, g);
    return vec4<f32>(decoded_dot(both.gate, x), decoded_dot(both.up, x), 0.0, 0.0);
}

fn vector_of_place(place: u32) -> u32 {
    return atomicLoad(&found[first_place + place]);
}

fn start_of_place(place: u32) -> u32 {
    return vector_of_place(place) / SLOTS * INPUT_PITCH;
}

// The weight of the expert of a vector's slot.
fn weight_of(vector: u32) -> f32 {
    let slot = vector % SLOTS;
    if slot == TOP_K {
        return 1.0;
    }
    return weights[vector / SLOTS * TOP_K + slot];
}

// The output of a tile of `count` slots.
fn compute_tile(count: u32, rows: u32, i: Invocation, team: Team) {
    let row = first_row(i.workgroup, team);
    var sums: PlaceSums;
    for (var first = 0u; first < INPUT_GROUPS; first += TILE) {
        let groups = min(TILE, INPUT_GROUPS - first);
        workgroupBarrier(); // what was staged before was read
        stage_places(count, first, groups, i.local);
        if first == 0u {
            leave_factors(count, team);
        }
        workgroupBarrier();
        if is_shared(i.workgroup.z) {
            shared_add_places(&sums, count, 0u, row, first, groups, team);
        } else {
            w_add_places(&sums, count, expert_of(i.workgroup.z), row, first, groups, team);
        }
    }
    let pair = sums_of_lane(sums, team.lane);
    let place = place_of_lane(team.lane);
    if leads(team.lane) && place < count && row < rows {
        let factor = factor_left(place);
        let vector = vector_of_place(place);
        let v = weight_of(vector) * swiglu(factor * pair.x, factor * pair.y);
        y[vector * Y_STRIDE + row] = v;
        epilogue_sum(0u, row, place, i, v);
    }
    workgroupBarrier();
    for (var h = i.local; h < HALVES * count; h += WORKGROUP) {
        let start = first_row_of_all(i.workgroup) + 16u * (h % HALVES);
        if start < rows {
            let at = rounded_place(vector_of_place(h / HALVES) * Y_STRIDE, start);
            write_half(at.x, at.y, rounded_half(kept_half(h)));
        }
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let team = team_of(i);
    let count = find_slots(i.workgroup.z, i.local);
    let rows = select(w_gate_ROWS, shared_gate_ROWS, is_shared(i.workgroup.z));
    for (first_place = 0u; first_place < count; first_place += PLACES) {
        compute_tile(min(count - first_place, PLACES), rows, i, team);
    }
}
