// y[head] = W[head] · the attention of that head, merged from its splits. Every workgroup of a head merges them again.
// Heads are counted over all rows of the batch, HEADS of each.

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
    merge(head, i.local, team);
    workgroupBarrier();
    write_sums(i, team, row, w_product(head % HEADS, 0u, row, i, team));
    epilogue(head * Y_STRIDE, Y_STRIDE, COLUMNS, w_ROWS, i);
}
