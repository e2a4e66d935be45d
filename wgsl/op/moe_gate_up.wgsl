// The first half of a mixture of experts and of the shared experts beside it: every workgroup makes the
// router's choice anew and works for one of the chosen, slot, or in the last slot for the shared ones. y[slot]
// is silu(gate · x) · (up · x), times the expert's weight for a chosen one. The shared experts' workgroups come
// first: theirs is often the wider format.

var<storage, read_write> ids: array<u32>;
var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let team = team_of(i);
    let slot = (i.workgroup.z + TOP_K) % (TOP_K + 1u);
    let row = first_row(i.workgroup, team);
    var gates: array<f32, ROWS>;
    var ups: array<f32, ROWS>;
    choose_scores(i.local);
    for (var first = 0u; first < w_gate_GROUPS; first += TILE) {
        let count = min(TILE, w_gate_GROUPS - first);
        stage(8u * first, count, i.local);
        if first == 0u {
            choose_ranks(i.local);
            workgroupBarrier();
        }
        if slot < TOP_K {
            w_add_gated(&gates, &ups, chosen[slot], row, first, count, team);
        } else {
            shared_add_gated(&gates, &ups, 0u, row, first, count, team);
        }
        workgroupBarrier();
    }
    gates = finished(gates, team);
    ups = finished(ups, team);
    let rows = select(shared_gate_ROWS, w_gate_ROWS, slot < TOP_K);
    var weight = 1.0;
    if slot < TOP_K {
        weight = chosen_weight(slot);
    }
    for (var k = 0u; k < ROWS; k++) {
        if team.lane == 0u && row + k < rows {
            y[slot * Y_STRIDE + row + k] = weight * swiglu(gates[k], ups[k]);
        }
    }
    if block_of(i.workgroup) == 0u && i.local == 0u && slot < TOP_K {
        ids[slot] = chosen[slot];
    }
}
