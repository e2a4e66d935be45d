// y = W · x and z = V · x: two matrices times the same vectors. The rows of V follow those of W.

var<storage, read_write> z: array<f32>;

var<private> second: bool; // true for rows of V

fn write_sum(i: Invocation, k: u32, row: u32, column: u32, sum: f32) {
    let vector = i.workgroup.z * COLUMNS + column;
    if second && row < v_ROWS {
        z[vector * Z_STRIDE + row] = sum;
    } else if !second && row < w_ROWS {
        y[vector * Y_STRIDE + row] = sum;
        epilogue_sum(k, row, column, i, sum);
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let team = team_of(i);
    let vector = i.workgroup.z * COLUMNS;
    second = block_of(i.workgroup) >= w_BLOCKS;
    let row = first_row(i.workgroup, team) - select(0u, w_BLOCKS * TEAMS * ROWS, second);
    if !second {
        epilogue_load(row, w_ROWS);
    }
    var sums = vec4<f32>(0.0);
    for (var first = 0u; first < w_GROUPS; first += TILE) {
        let count = min(TILE, w_GROUPS - first);
        stage(vector * X_STRIDE, COLUMNS, first, count, i);
        if second {
            sums += v_rows(0u, row, first, count, team);
        } else {
            sums += w_rows(0u, row, first, count, team);
        }
    }
    write_sums(i, team, row, finished(sums, column_factors(team), team));
    if !second {
        epilogue(vector * Y_STRIDE, Y_STRIDE, COLUMNS, w_ROWS, i);
    }
}
