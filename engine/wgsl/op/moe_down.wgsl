// y += Σ W[ids[slot]] · x[slot] + S · x[TOP_K], for each row of a batch: the second half of the selected experts, whose
// inputs are already multiplied by their weights, and of the shared ones, added to the residual stream.

const CHOSEN_GROUPS = TOP_K * w_GROUPS;
const ALL_GROUPS = CHOSEN_GROUPS + shared_GROUPS;

fn write_sum(i: Invocation, k: u32, row: u32, column: u32, sum: f32) {
    if row < w_ROWS {
        let v = before[k] + sum;
        y[i.workgroup.z * Y_STRIDE + row] = v;
        epilogue_sum(k, row, column, i, v);
    }
}

// The product of staged group g with a row of the selected expert to which the group belongs.
fn chosen_dot(token: u32, row: u32, g: u32, a: ptr<function, Group>) -> f32 {
    return w_dot(w_place(chosen_expert(token, g / w_GROUPS), row) + g % w_GROUPS, a);
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let team = team_of(i);
    let token = select(i.workgroup.z, 0u, ONE_ROW);
    if token >= row_count() {
        return;
    }
    let row = first_row(i.workgroup, team);
    keep_chosen(token, i.local);
    load_before(token * Y_STRIDE, row, w_ROWS);
    epilogue_load(row, w_ROWS);
    var sums = vec4<f32>(0.0);
    for (var first = 0u; first < ALL_GROUPS; first += TILE) {
        let count = min(TILE, ALL_GROUPS - first);
        stage(token * (TOP_K + 1u) * X_STRIDE, COLUMNS, first, count, i);
        let mine = min(max(CHOSEN_GROUPS, first) - first, count); // staged groups of the selected experts
        for (var g = team.lane; g < mine; g += LANES) {
            var a = staged_group(0u, g);
            sums.x += chosen_dot(token, row, first + g, &a);
            if ROWS > 1u { sums.y += chosen_dot(token, row + 1u, first + g, &a); }
            if ROWS > 2u { sums.z += chosen_dot(token, row + 2u, first + g, &a); }
            if ROWS > 3u { sums.w += chosen_dot(token, row + 3u, first + g, &a); }
        }
        for (var g = mine + team.lane; g < count; g += LANES) {
            var a = staged_group(0u, g);
            let at = first + g - CHOSEN_GROUPS;
            sums.x += shared_dot(shared_place(0u, row) + at, &a);
            if ROWS > 1u { sums.y += shared_dot(shared_place(0u, row + 1u) + at, &a); }
            if ROWS > 2u { sums.z += shared_dot(shared_place(0u, row + 2u) + at, &a); }
            if ROWS > 3u { sums.w += shared_dot(shared_place(0u, row + 3u) + at, &a); }
        }
    }
    write_sums(i, team, row, finished(sums, column_factors(team), team));
    epilogue(token * Y_STRIDE, Y_STRIDE, COLUMNS, w_ROWS, i);
}
