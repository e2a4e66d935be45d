// y[head] = W[head] · the head's attention, joined from its splits: every workgroup of a head joins them anew. Heads are
// counted over all tokens, HEADS of each.

var<storage, read_write> y: array<f32>;

fn write_sum(i: Invocation, k: u32, row: u32, column: u32, sum: f32) {
    if row < w_ROWS {
        y[i.workgroup.z * Y_STRIDE + row] = sum;
        epilogue_sum(k, row, column, i, sum);
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let team = team_of(i);
    let head = i.workgroup.z;
    if head >= HEADS * row_count() {
        return;
    }
    let row = first_row(i.workgroup, team);
    merge(head, i.local);
    workgroupBarrier();
    var sums = vec4<f32>(0.0);
    for (var first = 0u; first < w_GROUPS; first += TILE) {
        let count = min(TILE, w_GROUPS - first);
        stage(0u, COLUMNS, first, count, i);
        sums += w_rows(head % HEADS, row, first, count, team);
    }
    write_sums(i, team, row, finished(sums, column_factors(team), team));
    epilogue(head * Y_STRIDE, Y_STRIDE, COLUMNS, w_ROWS, i);
}
