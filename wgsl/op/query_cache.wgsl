// y = W · norm(x), the heads' queries from the compressed one, and beside it, in the last workgroup, the
// token's line of the latent cache.

const BLOCKS = (w_ROWS + TEAMS * ROWS - 1u) / (TEAMS * ROWS);

var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    if block_of(i.workgroup) == BLOCKS {
        write_line(i);
        return;
    }
    let team = team_of(i);
    let row = first_row(i.workgroup, team);
    var sums: array<f32, ROWS>;
    for (var first = 0u; first < w_GROUPS; first += TILE) {
        let count = min(TILE, w_GROUPS - first);
        stage(8u * first, count, i.local);
        w_add_rows(&sums, 0u, row, first, count, team);
        workgroupBarrier();
    }
    sums = finished(sums, team);
    for (var k = 0u; k < ROWS; k++) {
        if team.lane == 0u && row + k < w_ROWS {
            y[row + k] = sums[k];
        }
    }
}
