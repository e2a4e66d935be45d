// y = W · x and z = V · x: two matrices that multiply with the same vector, the rows of V behind those of W.

const W_BLOCKS = (w_ROWS + TEAMS * ROWS - 1u) / (TEAMS * ROWS);

var<storage, read_write> y: array<f32>;
var<storage, read_write> z: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let team = team_of(i);
    let second = block_of(i.workgroup) >= W_BLOCKS;
    let row = first_row(i.workgroup, team) - select(0u, W_BLOCKS * TEAMS * ROWS, second);
    var sums: array<f32, ROWS>;
    for (var first = 0u; first < w_GROUPS; first += TILE) {
        let count = min(TILE, w_GROUPS - first);
        stage(8u * first, count, i.local);
        if second {
            v_add_rows(&sums, 0u, row, first, count, team);
        } else {
            w_add_rows(&sums, 0u, row, first, count, team);
        }
        workgroupBarrier();
    }
    sums = finished(sums, team);
    for (var k = 0u; k < ROWS; k++) {
        if team.lane == 0u && second && row + k < v_ROWS {
            z[row + k] = sums[k];
        } else if team.lane == 0u && !second && row + k < w_ROWS {
            y[row + k] = sums[k];
        }
    }
}
