// The products of a tile whose weights have the role w: what the invocations load, the sums, and their results. See
// op/mul_mm_matrix.wgsl.

fn w_raw_of(i: u32, tile: Tile, matrix: u32, group: u32, local: u32) -> array<vec4<u32>, 4> {
    let at = brought(i, local);
    let r = min(at.x, TILE_ROWS - 1u);
    let place = w_staged_at(tile, matrix, r, group + at.y);
    if is_second(i, r) {
        return w_second_raw(place);
    }
    return w_raw(place);
}

fn w_share_of(tile: Tile, matrix: u32, starts: array<vec4<u32>, MAX_VECTORS / 4u>, group: u32, local: u32) -> Share {
    var share: Share;
    share.rows[0] = w_raw_of(0u, tile, matrix, group, local);
    if ROW_SHARE > 1u { share.rows[1] = w_raw_of(1u, tile, matrix, group, local); }
    if ROW_SHARE > 2u { share.rows[2] = w_raw_of(2u, tile, matrix, group, local); }
    if ROW_SHARE > 3u { share.rows[3] = w_raw_of(3u, tile, matrix, group, local); }
    share.vectors[0] = four_chunks(0u, starts[0], group);
    if VECTOR_SHARE > 4u { share.vectors[1] = four_chunks(4u, starts[1], group); }
    if VECTOR_SHARE > 8u { share.vectors[2] = four_chunks(8u, starts[2], group); }
    if VECTOR_SHARE > 12u { share.vectors[3] = four_chunks(12u, starts[3], group); }
    return share;
}

fn w_put_raw(i: u32, raw: array<vec4<u32>, 4>, local: u32) {
    let at = brought(i, local);
    if at.x < TILE_ROWS {
        var halves: array<vec4<f16>, 8>;
        if is_second(i, at.x) {
            halves = w_second_halves(raw);
        } else {
            halves = w_halves(raw);
        }
        let to = at.x * PITCH + 32u * at.y;
        put_row(to, halves[0]);
        put_row(to + 4u, halves[1]);
        put_row(to + 8u, halves[2]);
        put_row(to + 12u, halves[3]);
        put_row(to + 16u, halves[4]);
        put_row(to + 20u, halves[5]);
        put_row(to + 24u, halves[6]);
        put_row(to + 28u, halves[7]);
    }
}

// Stores a share in workgroup memory: columns 0, 2, 1, 3 of every four, like the weights.
fn w_put(share: Share, local: u32) {
    w_put_raw(0u, share.rows[0], local);
    if ROW_SHARE > 1u { w_put_raw(1u, share.rows[1], local); }
    if ROW_SHARE > 2u { w_put_raw(2u, share.rows[2], local); }
    if ROW_SHARE > 3u { w_put_raw(3u, share.rows[3], local); }
    put_four(0u, share.vectors[0], local);
    if VECTOR_SHARE > 4u { put_four(4u, share.vectors[1], local); }
    if VECTOR_SHARE > 8u { put_four(8u, share.vectors[2], local); }
    if VECTOR_SHARE > 12u { put_four(12u, share.vectors[3], local); }
}

// Multiplies a part of the columns of a matrix of the stack. Called by the whole workgroup in uniform control flow.
fn w_multiply(tile: Tile, matrix: u32, part: u32, local: u32) {
    let subgroup = local / 32u;
    let first_place = subgroup / ROW_SUBGROUPS * LEFTS * SIDE;
    let first_row = subgroup % ROW_SUBGROUPS * RIGHTS * SIDE;
    let pitch = PITCH / CELL;
    let starts = starts_of(tile, local);

    // Separate variables, because drivers keep arrays of matrices in slow memory.
    var sum00 = Sums(); var sum01 = Sums(); var sum02 = Sums(); var sum03 = Sums();
    var sum10 = Sums(); var sum11 = Sums(); var sum12 = Sums(); var sum13 = Sums();
    var sum20 = Sums(); var sum21 = Sums(); var sum22 = Sums(); var sum23 = Sums();
    var sum30 = Sums(); var sum31 = Sums(); var sum32 = Sums(); var sum33 = Sums();
    let steps = w_GROUPS / STEP_GROUPS;
    var group = part * steps / PARTS * STEP_GROUPS;
    let end = (part + 1u) * steps / PARTS * STEP_GROUPS;
    var share = w_share_of(tile, matrix, starts, group, local);
    for (; group < end; group += STEP_GROUPS) {
        w_put(share, local);
        workgroupBarrier();
        share = w_share_of(tile, matrix, starts, min(group + STEP_GROUPS, end - STEP_GROUPS), local);
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
        workgroupBarrier(); // everything is read before the next step overwrites it
    }
    let pair = first_row / (2u * SIDE);
    leave_row(tile, part, first_place, pair, sum00, sum01, sum02, sum03, local);
    if LEFTS > 1u { leave_row(tile, part, first_place + 1u * SIDE, pair, sum10, sum11, sum12, sum13, local); }
    if LEFTS > 2u { leave_row(tile, part, first_place + 2u * SIDE, pair, sum20, sum21, sum22, sum23, local); }
    if LEFTS > 3u { leave_row(tile, part, first_place + 3u * SIDE, pair, sum30, sum31, sum32, sum33, local); }
}
