// y = W · norm(x), the heads' queries from the compressed one, for each of several tokens, and beside it, in the last
// workgroups, the tokens' KV rows of the latent cache.

const BLOCKS = (w_ROWS + TEAMS * ROWS - 1u) / (TEAMS * ROWS);

var<storage, read_write> y: array<f32>;

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
    if block >= BLOCKS {
        let row = first_vector + block - BLOCKS;
        if row < row_count() {
            write_kv_row(row, i);
        }
        return;
    }
    let team = team_of(i);
    let row = first_row(i.workgroup, team);
    var sums = vec4<f32>(0.0);
    for (var first = 0u; first < w_GROUPS; first += TILE) {
        let count = min(TILE, w_GROUPS - first);
        stage(first_vector * X_STRIDE, COLUMNS, first, count, i);
        sums += w_rows(0u, row, first, count, team);
    }
    write_sums(i, team, row, finished(sums, column_factors(team), team));
    epilogue(first_vector * Y_STRIDE, Y_STRIDE, COLUMNS, w_ROWS, i);
}
