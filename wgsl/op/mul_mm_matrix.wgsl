// Products of a tile by cooperative matrices: TILE_TOKENS vectors with TILE_ROWS staged rows, in f16, summed in f32.
// Both come to workgroup memory STEP columns at a time; while a step is multiplied the next one is on its way in
// registers. Subgroups stand ROW_SUBGROUPS abreast along the rows; each sums up to 4 by 4 matrices.

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    if local == 0u {
        let mine = tile_of(in_grid(workgroup));
        atomicStore(&found[0], mine.matrix);
        atomicStore(&found[1], mine.row);
        atomicStore(&found[2], mine.first);
        atomicStore(&found[3], mine.places);
    }
    let places = workgroupUniformLoad(&found[3]); // matrices multiply only where all invocations are sure to come
    if places == 0u {
        return;
    }
    let tile = Tile(atomicLoad(&found[0]), atomicLoad(&found[1]), atomicLoad(&found[2]), places);
    let subgroup = local / 32u;
    let first_place = subgroup / ROW_SUBGROUPS * LEFTS * SIDE;
    let first_row = subgroup % ROW_SUBGROUPS * RIGHTS * SIDE;
    let pitch = PITCH / CELL;
    var starts: array<u32, VECTOR_SHARE>; // of this invocation's chunks: places without a token repeat the last
    for (var i = 0u; i < VECTOR_SHARE; i++) {
        let n = local + i * WORKGROUP;
        starts[i] = input_at(tile, min(n / CHUNKS, tile.places - 1u)) + n % CHUNKS;
    }

    // Matrices by name: drivers keep arrays of them where they are slow.
    var sum00 = Sums();
    var sum01 = Sums();
    var sum02 = Sums();
    var sum03 = Sums();
    var sum10 = Sums();
    var sum11 = Sums();
    var sum12 = Sums();
    var sum13 = Sums();
    var sum20 = Sums();
    var sum21 = Sums();
    var sum22 = Sums();
    var sum23 = Sums();
    var sum30 = Sums();
    var sum31 = Sums();
    var sum32 = Sums();
    var sum33 = Sums();
    var share = share_of(tile, starts, 0u, local);
    for (var group = 0u; group < GROUPS; group += STEP_GROUPS) {
        put(share, local);
        workgroupBarrier();
        share = share_of(tile, starts, min(group + STEP_GROUPS, GROUPS - STEP_GROUPS), local);
        for (var k = 0u; k < STEP; k += SIDE) {
            let from_rows = (first_row * PITCH + k) / CELL;
            let from_places = (first_place * PITCH + k) / CELL;
            let row1 = from_rows + 1u * SIDE * PITCH / CELL;
            let row2 = from_rows + 2u * SIDE * PITCH / CELL;
            let row3 = from_rows + 3u * SIDE * PITCH / CELL;
            let place1 = from_places + 1u * SIDE * PITCH / CELL;
            let place2 = from_places + 2u * SIDE * PITCH / CELL;
            let place3 = from_places + 3u * SIDE * PITCH / CELL;
            let b0 = coopLoad<Right>(&rows[from_rows], pitch);
            var b1: Right;
            var b2: Right;
            var b3: Right;
            if RIGHTS > 1u { b1 = coopLoad<Right>(&rows[row1], pitch); }
            if RIGHTS > 2u { b2 = coopLoad<Right>(&rows[row2], pitch); }
            if RIGHTS > 3u { b3 = coopLoad<Right>(&rows[row3], pitch); }
            let a0 = coopLoadT<Left>(&vectors[from_places], pitch);
            sum00 = coopMultiplyAdd(a0, b0, sum00);
            if RIGHTS > 1u { sum01 = coopMultiplyAdd(a0, b1, sum01); }
            if RIGHTS > 2u { sum02 = coopMultiplyAdd(a0, b2, sum02); }
            if RIGHTS > 3u { sum03 = coopMultiplyAdd(a0, b3, sum03); }
            if LEFTS > 1u {
                let a1 = coopLoadT<Left>(&vectors[place1], pitch);
                sum10 = coopMultiplyAdd(a1, b0, sum10);
                if RIGHTS > 1u { sum11 = coopMultiplyAdd(a1, b1, sum11); }
                if RIGHTS > 2u { sum12 = coopMultiplyAdd(a1, b2, sum12); }
                if RIGHTS > 3u { sum13 = coopMultiplyAdd(a1, b3, sum13); }
            }
            if LEFTS > 2u {
                let a2 = coopLoadT<Left>(&vectors[place2], pitch);
                sum20 = coopMultiplyAdd(a2, b0, sum20);
                if RIGHTS > 1u { sum21 = coopMultiplyAdd(a2, b1, sum21); }
                if RIGHTS > 2u { sum22 = coopMultiplyAdd(a2, b2, sum22); }
                if RIGHTS > 3u { sum23 = coopMultiplyAdd(a2, b3, sum23); }
            }
            if LEFTS > 3u {
                let a3 = coopLoadT<Left>(&vectors[place3], pitch);
                sum30 = coopMultiplyAdd(a3, b0, sum30);
                if RIGHTS > 1u { sum31 = coopMultiplyAdd(a3, b1, sum31); }
                if RIGHTS > 2u { sum32 = coopMultiplyAdd(a3, b2, sum32); }
                if RIGHTS > 3u { sum33 = coopMultiplyAdd(a3, b3, sum33); }
            }
        }
        workgroupBarrier(); // all is read before the next step overwrites it
    }
    let pair = first_row / (2u * SIDE);
    leave_both(tile, first_place, pair, sum00, sum01, local);
    if RIGHTS > 2u { leave_both(tile, first_place, pair + 1u, sum02, sum03, local); }
    if LEFTS > 1u { leave_both(tile, first_place + 1u * SIDE, pair, sum10, sum11, local); }
    if LEFTS > 1u && RIGHTS > 2u { leave_both(tile, first_place + 1u * SIDE, pair + 1u, sum12, sum13, local); }
    if LEFTS > 2u { leave_both(tile, first_place + 2u * SIDE, pair, sum20, sum21, local); }
    if LEFTS > 2u && RIGHTS > 2u { leave_both(tile, first_place + 2u * SIDE, pair + 1u, sum22, sum23, local); }
    if LEFTS > 3u { leave_both(tile, first_place + 3u * SIDE, pair, sum30, sum31, local); }
    if LEFTS > 3u && RIGHTS > 2u { leave_both(tile, first_place + 3u * SIDE, pair + 1u, sum32, sum33, local); }
}
