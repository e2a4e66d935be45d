// A head's query as attention over the latent cache wants it: y[head] = W[head] · its part without position,
// and behind that, in the head's last workgroup, its rotary part, turned.

const BLOCKS = (w_ROWS + TEAMS * ROWS - 1u) / (TEAMS * ROWS);

var<storage, read_write> y: array<f32>;

// Pair i of the rotary part of a head's query. The values before it are a whole number of pairs.
fn query_pair(head: u32, i: u32) -> vec2<f32> {
    let at = NOPE / 2u + i;
    let four = x[head * X_STRIDE + at / 2u];
    return select(four.xy, four.zw, (at & 1u) == 1u);
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let head = i.workgroup.z;
    if block_of(i.workgroup) == BLOCKS {
        for (var k = i.local; k < PAIRS; k += WORKGROUP) {
            let turned = rotated(query_pair(head, k), k);
            y[head * Y_STRIDE + w_ROWS + 2u * k] = turned.x;
            y[head * Y_STRIDE + w_ROWS + 2u * k + 1u] = turned.y;
        }
        return;
    }
    let team = team_of(i);
    let row = first_row(i.workgroup, team);
    var sums: array<f32, ROWS>;
    for (var first = 0u; first < w_GROUPS; first += TILE) {
        let count = min(TILE, w_GROUPS - first);
        stage(head * X_STRIDE + 8u * first, count, i.local);
        w_add_rows(&sums, head, row, first, count, team);
        workgroupBarrier();
    }
    sums = finished(sums, team);
    for (var k = 0u; k < ROWS; k++) {
        if team.lane == 0u && row + k < w_ROWS {
            y[head * Y_STRIDE + row + k] = sums[k];
        }
    }
}
