// Attention as in mla_attention, by cooperative matrices of 16 x 16 for ROWS = 16 heads at a time. A tile of
// SPAN KV rows of the cache is brought to workgroup memory once, where it is multiplied twice: as keys with the
// queries, whose columns PARTS subgroups share, and as values with the weights.
//
// Weights are relative to a score that is at most MARGIN below the largest so far: only where one exceeds that by
// more are earlier sums brought down.

const LOWEST = -1e30; // below every score; finite, for fast-math compilers assume no infinity
const MARGIN = 6.0;

// Makes weights of the tile's scores, a head a team.
fn weigh_tile(tile: u32, end: u32, team: Team) {
    let h = team.index;
    var scores: array<f32, SPAN / LANES>;
    var largest = LOWEST;
    for (var n = 0u; n < SPAN / LANES; n++) {
        let t = team.lane + n * LANES;
        var score = 0.0;
        for (var part = 0u; part < PARTS; part++) {
            score += partial[(part * ROWS + h) * SPAN + t];
        }
        scores[n] = select(LOWEST, score * (SCALE / QUERY_UNIT), tile + t < end);
        largest = max(largest, scores[n]);
    }
    let top = team_max(largest, team);
    let before = references[h];
    let reference = select(before, top, top > before + MARGIN);
    var sum = 0.0;
    for (var n = 0u; n < SPAN / LANES; n++) {
        let weight = WEIGHT_UNIT * exp(scores[n] - reference);
        let at = h * WEIGHT_PITCH + team.lane + n * LANES;
        let first = select(weight, leading(weight), TERMS == 2u);
        weights[at] = f16(first);
        if TERMS == 2u {
            weights[ROWS * WEIGHT_PITCH + at] = f16(weight - first);
        }
        sum += weight;
    }
    let total = team_sum(sum, team);
    if team.lane == 0u {
        let rescale = exp(before - reference);
        references[h] = reference;
        rescales[h] = rescale;
        totals[h] = totals[h] * rescale + total;
        if reference != before && before > LOWEST { // of the first tile there are no earlier sums
            exceeded = vec4<u32>(1u);
        }
    }
}

// Matrices are multiplied in control flow that the compiler sees to be the workgroup's: bounds are loaded by all at
// once, and what an invocation is told comes one by one, for of a struct it would take the least certain.
@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let workgroup = in_grid(id);
    let team = team_of(Invocation(id, local, subgroup, lane, 32u));
    if local == 0u {
        let split = split_for(workgroup.z, workgroup.y);
        bounds = vec4<u32>(split.start, split.end, 0u, 0u);
    }
    let uniform_bounds = workgroupUniformLoad(&bounds);
    let split = Split(uniform_bounds.x, uniform_bounds.y);
    if split.start >= split.end {
        return;
    }
    // The last heads overlap those before.
    let first_head = workgroup.z * HEADS + min(workgroup.x * ROWS, HEADS - ROWS);
    let part = subgroup % PARTS;
    let tokens = 16u * (subgroup / PARTS); // first token of those whose scores are this subgroup's
    let column = subgroup * VALUE_TILES;   // first of the matrices of a value that are this subgroup's
    let first_page = first_page_of(workgroup.z);
    let first_place = tile_place(first_page, split.start, split.end);
    var next_place = tile_place(first_page, split.start + SPAN, split.end);

    // Matrices by name: drivers keep arrays of them where they are slow.
    put_queries(first_head, 0u, local); // while the first page is looked up
    var share = load_share(first_place, split.start, split.end, local);
    workgroupBarrier();
    var a0 = query(part, 0u);
    var a1: coop_mat16x16<f16, A>;
    var a2: coop_mat16x16<f16, A>;
    var a3: coop_mat16x16<f16, A>;
    var a4: coop_mat16x16<f16, A>;
    var a5: coop_mat16x16<f16, A>;
    var a6: coop_mat16x16<f16, A>;
    var a7: coop_mat16x16<f16, A>;
    var a8: coop_mat16x16<f16, A>;
    if KEY_STEPS > 1u { a1 = query(part, 1u); }
    if KEY_STEPS > 2u { a2 = query(part, 2u); }
    if KEY_STEPS > 3u { a3 = query(part, 3u); }
    if KEY_STEPS > 4u { a4 = query(part, 4u); }
    if KEY_STEPS > 5u { a5 = query(part, 5u); }
    if KEY_STEPS > 6u { a6 = query(part, 6u); }
    if KEY_STEPS > 7u { a7 = query(part, 7u); }
    if KEY_STEPS > 8u { a8 = query(part, 8u); }
    workgroupBarrier();
    var b0: coop_mat16x16<f16, A>;
    var b1: coop_mat16x16<f16, A>;
    var b2: coop_mat16x16<f16, A>;
    var b3: coop_mat16x16<f16, A>;
    var b4: coop_mat16x16<f16, A>;
    var b5: coop_mat16x16<f16, A>;
    var b6: coop_mat16x16<f16, A>;
    var b7: coop_mat16x16<f16, A>;
    var b8: coop_mat16x16<f16, A>;
    if TERMS == 2u {
        put_queries(first_head, 1u, local);
        workgroupBarrier();
        b0 = query(part, 0u);
        if KEY_STEPS > 1u { b1 = query(part, 1u); }
        if KEY_STEPS > 2u { b2 = query(part, 2u); }
        if KEY_STEPS > 3u { b3 = query(part, 3u); }
        if KEY_STEPS > 4u { b4 = query(part, 4u); }
        if KEY_STEPS > 5u { b5 = query(part, 5u); }
        if KEY_STEPS > 6u { b6 = query(part, 6u); }
        if KEY_STEPS > 7u { b7 = query(part, 7u); }
        if KEY_STEPS > 8u { b8 = query(part, 8u); }
        workgroupBarrier();
    }
    if local < ROWS {
        references[local] = LOWEST;
        totals[local] = 0.0;
    }

    var sum0 = coop_mat16x16<f32, C>();
    var sum1 = coop_mat16x16<f32, C>();
    var sum2 = coop_mat16x16<f32, C>();
    var sum3 = coop_mat16x16<f32, C>();
    for (var tile = split.start; tile < split.end; tile += SPAN) {
        for (var n = 0u; n < SHARE; n++) {
            put(local + n * WORKGROUP, share[n]);
        }
        if local == 0u {
            exceeded = vec4<u32>(0u);
        }
        workgroupBarrier();
        share = load_share(next_place, tile + SPAN, split.end, local); // on its way while this tile is computed
        // The list of pages is read at the start of a page alone: in the way of every tile it took 2 % of a token's time
        // with 32768 others in the cache.
        next_place += SPAN;
        if (tile + 2u * SPAN) % PAGE == 0u {
            next_place = tile_place(first_page, tile + 2u * SPAN, split.end);
        }

        var scores = coop_mat16x16<f32, C>();
        scores = with_keys(scores, a0, b0, tokens, part, 0u);
        if KEY_STEPS > 1u { scores = with_keys(scores, a1, b1, tokens, part, 1u); }
        if KEY_STEPS > 2u { scores = with_keys(scores, a2, b2, tokens, part, 2u); }
        if KEY_STEPS > 3u { scores = with_keys(scores, a3, b3, tokens, part, 3u); }
        if KEY_STEPS > 4u { scores = with_keys(scores, a4, b4, tokens, part, 4u); }
        if KEY_STEPS > 5u { scores = with_keys(scores, a5, b5, tokens, part, 5u); }
        if KEY_STEPS > 6u { scores = with_keys(scores, a6, b6, tokens, part, 6u); }
        if KEY_STEPS > 7u { scores = with_keys(scores, a7, b7, tokens, part, 7u); }
        if KEY_STEPS > 8u { scores = with_keys(scores, a8, b8, tokens, part, 8u); }
        let to = part * ROWS * SPAN + tokens;
        let span = SPAN;
        coopStoreT(scores, &partial[to], span);
        workgroupBarrier();
        weigh_tile(tile, split.end, team);

        if workgroupUniformLoad(&exceeded).x == 1u {
            sum0 = rescaled(sum0, subgroup, lane);
            if VALUE_TILES > 1u { sum1 = rescaled(sum1, subgroup, lane); }
            if VALUE_TILES > 2u { sum2 = rescaled(sum2, subgroup, lane); }
            if VALUE_TILES > 3u { sum3 = rescaled(sum3, subgroup, lane); }
        }
        for (var k = 0u; k < SPAN / 16u; k++) {
            for (var term = 0u; term < TERMS; term++) {
                let from_weights = term * ROWS * WEIGHT_PITCH + 16u * k;
                let weight_pitch = WEIGHT_PITCH;
                let shares = coopLoadT<coop_mat16x16<f16, A>>(&weights[from_weights], weight_pitch);
                sum0 = with_values(sum0, shares, k, column);
                if VALUE_TILES > 1u { sum1 = with_values(sum1, shares, k, column + 1u); }
                if VALUE_TILES > 2u { sum2 = with_values(sum2, shares, k, column + 2u); }
                if VALUE_TILES > 3u { sum3 = with_values(sum3, shares, k, column + 3u); }
            }
        }
        workgroupBarrier(); // KV rows and weights are read before the next tile overwrites them
    }

    let slot = first_head * split_count() + workgroup.y;
    if local < ROWS {
        stats[slot + local * split_count()] = vec2<f32>(references[local], totals[local]);
    }
    leave(sum0, slot, column);
    if VALUE_TILES > 1u { leave(sum1, slot, column + 1u); }
    if VALUE_TILES > 2u { leave(sum2, slot, column + 2u); }
    if VALUE_TILES > 3u { leave(sum3, slot, column + 3u); }
}
