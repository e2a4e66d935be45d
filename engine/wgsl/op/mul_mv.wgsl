// y = W · x, or y += W · x, for each of several vectors: with a stack of MATRICES, each vector times a matrix of its
// own; with one matrix, COLUMNS vectors at a time.

fn first_vector(i: Invocation) -> u32 {
    return in_grid(i.workgroup).z * COLUMNS;
}

fn write_sum(i: Invocation, k: u32, row: u32, column: u32, sum: f32) {
    if row < w_ROWS {
        let v = before[k] + sum;
        y[(first_vector(i) + column) * Y_STRIDE + row] = v;
        epilogue_sum(k, row, column, i, v);
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let team = team_of(i);
    let vector = first_vector(i);
    let row = first_row(i.workgroup, team);
    if ACCUMULATE {
        load_before(vector * Y_STRIDE, row, w_ROWS);
    }
    epilogue_load(row, w_ROWS);
    write_sums(i, team, row, w_product(vector % MATRICES, vector * X_STRIDE, row, i, team));
    epilogue(vector * Y_STRIDE, Y_STRIDE, COLUMNS, w_ROWS, i);
}
