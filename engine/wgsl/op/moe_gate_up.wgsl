// The first half of a mixture of experts and of the shared experts beside it, for each row of a batch. A workgroup
// computes rows of the selected expert of one slot or, in slot TOP_K, of the shared ones, in the latter case for
// COLUMNS rows of the batch at a time. y[slot] = silu(gate · x) · (up · x), times the expert's weight if it is a
// selected one. The shared experts' workgroups come first, because their format is often the wider one. One of two
// files provides the selection: lib/moe_choose.wgsl, if every workgroup selects, and lib/moe_chosen.wgsl, if an earlier
// step has. They provide
//   begin_choice(local)  called by all invocations before the input is staged
//   end_choice(local)    called by all invocations after the next barrier
//   expert_of(slot), expert_weight(slot)  valid after that
//   leave_choice(slot)   called by one invocation for each slot

const SLOTS = TOP_K + 1u; // of a row of the batch

var<private> token: u32; // the row of the batch, the first if there are several
var<private> slot: u32;
var<private> weight: f32;

fn rows_of_slot() -> u32 {
    return select(shared_gate_ROWS, w_gate_ROWS, slot < TOP_K);
}

fn columns_of_slot() -> u32 {
    return select(COLUMNS, 1u, slot < TOP_K);
}

fn write_sum(i: Invocation, k: u32, row: u32, column: u32, gated: f32) {
    if row < rows_of_slot() && column < columns_of_slot() {
        let v = weight * gated;
        y[((token + column) * SLOTS + slot) * Y_STRIDE + row] = v;
        epilogue_sum(k, row, column, i, v);
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let team = team_of(i);
    let shared_layers = (row_count() + COLUMNS - 1u) / COLUMNS;
    if i.workgroup.z < shared_layers {
        token = i.workgroup.z * COLUMNS;
        slot = TOP_K;
    } else {
        let index = i.workgroup.z - shared_layers;
        token = select(index / TOP_K, 0u, ONE_ROW);
        slot = index % TOP_K;
    }
    if token >= row_count() {
        return;
    }
    let row = first_row(i.workgroup, team);
    var sums: Gated;
    begin_choice(i.local);
    for (var first = 0u; first < w_gate_GROUPS; first += TILE) {
        let count = min(TILE, w_gate_GROUPS - first);
        stage(token * X_STRIDE, columns_of_slot(), first, count, i);
        if first == 0u {
            end_choice(i.local);
        }
        if slot < TOP_K {
            sums = added(sums, w_gated_rows(expert_of(slot), row, first, count, team));
        } else {
            sums = added(sums, shared_gated_rows(0u, row, first, count, team));
        }
    }
    weight = 1.0;
    if slot < TOP_K {
        weight = expert_weight(slot);
    }
    write_sums(i, team, row, swiglu_rows(sums, column_factors(team), team));
    epilogue((token * SLOTS + slot) * Y_STRIDE, SLOTS * Y_STRIDE, columns_of_slot(), rows_of_slot(), i);
    if block_of(i.workgroup) == 0u && i.local == 0u && slot < TOP_K {
        leave_choice(slot);
    }
}
