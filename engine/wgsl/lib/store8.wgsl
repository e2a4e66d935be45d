// How matrices of 8 x 8 store the sums of a product. Metal does not multiply matrices by scalars. So if sums can be
// stored directly in the output (DIRECT), vectors are multiplied by the inverse of the unit of the weights: a power
// of two, exact except for values below 0.001, which lose bits in f16, and become 0 below 5e-7. Inputs of such products
// are normalised, or queries, or outputs of attention, and rarely so small; others keep all bits.

const DIRECT_UNIT = 1.0 / WEIGHT_UNIT;
const VECTOR_UNIT = select(1.0, DIRECT_UNIT, DIRECT);
const SUM_UNIT = select(DIRECT_UNIT, 1.0, DIRECT);

var<workgroup> sums: array<f32, SUBGROUPS * RIGHTS * SIDE * SIDE>; // [place][row] of each subgroup

fn store_sums(s: Sums, at: u32) {
    let pitch = Y_PITCH;
    coopStoreT(s, &y[at], pitch);
}

// Stores RIGHTS matrices of sums of SIDE vectors, beginning at `first`: all of them at once, because barriers are slow.
fn leave_sums(tile: Tile, first: u32, pair: u32, s0: Sums, s1: Sums, s2: Sums, s3: Sums, local: u32) {
    let scratch = local / 32u * RIGHTS * SIDE * SIDE;
    let pitch = RIGHTS * SIDE;
    let second = scratch + SIDE;
    let third = scratch + 2u * SIDE;
    let fourth = scratch + 3u * SIDE;
    workgroupBarrier(); // the previous sums were read
    coopStoreT(s0, &sums[scratch], pitch);
    coopStoreT(s1, &sums[second], pitch);
    if RIGHTS > 2u { coopStoreT(s2, &sums[third], pitch); }
    if RIGHTS > 2u { coopStoreT(s3, &sums[fourth], pitch); }
    workgroupBarrier();
    let lane = local % 32u;
    leave_four(tile, first, pair, scratch, lane);
    leave_four(tile, first + 4u, pair, scratch + 4u * pitch, lane);
}

// Stores those of four vectors, whose sums begin at `start`.
fn leave_four(tile: Tile, first: u32, pair: u32, start: u32, lane: u32) {
    let place = first + lane / SIDE;
    let row = lane % SIDE;
    let at = start + lane / SIDE * RIGHTS * SIDE + row;
    if place < tile.places {
        leave(tile, place, pair, row, SUM_UNIT * sums[at], SUM_UNIT * sums[at + SIDE]);
        if RIGHTS > 2u {
            leave(tile, place, pair + 1u, row, SUM_UNIT * sums[at + 2u * SIDE], SUM_UNIT * sums[at + 3u * SIDE]);
        }
    }
}
