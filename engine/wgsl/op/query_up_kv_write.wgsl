// y = W · norm(x), the heads' queries from the compressed ones, for each row of a batch. The last workgroups write the
// KV rows of the latent cache.

fn kv_chunk(row: u32, k: u32) -> vec4<f32> {
    return kv[row * KV_PITCH + k];
}

fn write_sum(i: Invocation, k: u32, row: u32, column: u32, sum: f32) {
    if row < w_ROWS {
        y[(i.workgroup.z * COLUMNS + column) * Y_STRIDE + row] = sum;
        epilogue_sum(k, row, column, i, sum);
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let first_vector = i.workgroup.z * COLUMNS;
    let block = block_of(i.workgroup);
    if block >= w_BLOCKS {
        let row = first_vector + block - w_BLOCKS;
        if row < row_count() {
            write_kv_row(row, i);
        }
        return;
    }
    let team = team_of(i);
    let row = first_row(i.workgroup, team);
    write_sums(i, team, row, w_product(0u, first_vector * X_STRIDE, row, i, team));
    epilogue(first_vector * Y_STRIDE, Y_STRIDE, COLUMNS, w_ROWS, i);
}
