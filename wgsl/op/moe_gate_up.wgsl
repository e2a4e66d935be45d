// The first half of a mixture of experts and of the shared experts beside it, for each row of a batch. Every workgroup
// makes the router's choice anew. It works for one of the chosen experts, its slot, or, in slot TOP_K, for the shared
// ones, and then for COLUMNS rows of the batch. y[slot] = silu(gate · x) · (up · x), times the expert's weight if it is
// a chosen one. The shared experts' workgroups come first, because theirs is often the wider format.

const SLOTS = TOP_K + 1u; // of a row of the batch

var<storage, read_write> ids: array<u32>;

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

fn logit(e: u32) -> f32 {
    return logits[first_logit + e];
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
    first_logit = token * LOGITS_PITCH;
    let row = first_row(i.workgroup, team);
    var sums: Gated;
    score_experts(i.local);
    for (var first = 0u; first < w_gate_GROUPS; first += TILE) {
        let count = min(TILE, w_gate_GROUPS - first);
        stage(token * X_STRIDE, columns_of_slot(), first, count, i);
        if first == 0u {
            rank_experts(i.local);
            workgroupBarrier();
        }
        if slot < TOP_K {
            sums = added(sums, w_gated_rows(atomicLoad(&selected[slot]), row, first, count, team));
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
        ids[token * TOP_K + slot] = atomicLoad(&selected[slot]);
    }
}
