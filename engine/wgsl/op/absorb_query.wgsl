// A head's query for attention over the latent cache: y[head] = W[head] · its part without position, followed by its
// rotary part, pair after pair, which the head's last workgroup writes. Heads are counted over all rows of the batch,
// HEADS of each.

var<storage, read> query: array<vec4<f32>>;

// Pair i of the rotary part of a head's query. The values before it are a whole number of pairs.
fn query_pair(head: u32, i: u32) -> vec2<f32> {
    let at = NOPE / 2u + i;
    let four = query[head * X_STRIDE + at / 2u];
    return select(four.xy, four.zw, (at & 1u) == 1u);
}

fn write_sum(i: Invocation, k: u32, row: u32, column: u32, sum: f32) {
    if row < w_ROWS {
        y[i.workgroup.z * Y_STRIDE + row] = sum;
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let head = i.workgroup.z;
    if block_of(i.workgroup) == w_BLOCKS {
        for (var k = i.local; k < PAIRS; k += WORKGROUP) {
            let pair = rotated(query_pair(head, k), head / HEADS, k);
            y[head * Y_STRIDE + w_ROWS + 2u * k] = pair.x;
            y[head * Y_STRIDE + w_ROWS + 2u * k + 1u] = pair.y;
        }
        return;
    }
    let team = team_of(i);
    let row = first_row(i.workgroup, team);
    write_sums(i, team, row, w_product(head % HEADS, head * X_STRIDE, row, i, team));
}
