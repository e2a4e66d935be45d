// How matrices of 16 x 16 store the sums of a product, divided by the unit of the weights.

const VECTOR_UNIT = 1.0;

var<workgroup> sums: array<f32, SUBGROUPS * SIDE * SIDE>;

// Stores sums in the output, beginning at value `at`.
fn store_sums(s: Sums, at: u32) {
    let pitch = Y_PITCH;
    coopStoreT(s * (1.0 / WEIGHT_UNIT), &y[at], pitch);
}

// Stores RIGHTS matrices of sums of SIDE vectors, beginning at `first`.
fn leave_sums(tile: Tile, first: u32, pair: u32, s0: Sums, s1: Sums, s2: Sums, s3: Sums, local: u32) {
    leave_both(tile, first, pair, s0, s1, local);
    if RIGHTS > 2u { leave_both(tile, first, pair + 1u, s2, s3, local); }
}

// Stores two of them, of a pair of SIDE rows each.
fn leave_both(tile: Tile, first: u32, pair: u32, left: Sums, right: Sums, local: u32) {
    let lane = local % 32u;
    let scratch = local / 32u * SIDE * SIDE;
    let pitch = SIDE;
    var kept: array<f32, SIDE * SIDE / 32u>;
    coopStoreT(left, &sums[scratch], pitch);
    workgroupBarrier();
    for (var k = 0u; k < SIDE * SIDE / 32u; k++) {
        kept[k] = sums[scratch + lane + 32u * k] / WEIGHT_UNIT;
    }
    workgroupBarrier();
    coopStoreT(right, &sums[scratch], pitch);
    workgroupBarrier();
    for (var k = 0u; k < SIDE * SIDE / 32u; k++) {
        let n = lane + 32u * k;
        let place = first + n / SIDE;
        if place < tile.places {
            leave(tile, place, pair, n % SIDE, kept[k], sums[scratch + n] / WEIGHT_UNIT);
        }
    }
    workgroupBarrier();
}
