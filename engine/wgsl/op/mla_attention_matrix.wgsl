// Attention as in op/mla_attention.wgsl, with cooperative matrices of 16 x 16, for ROWS heads at a time, which are 16.
// They are those of a row of the batch or, with TOGETHER, those of all rows one after the other: rows of one sequence
// read the same KV rows, and earlier ones attend to fewer of them. A tile of SPAN KV rows is loaded to workgroup memory
// once and multiplied twice: as keys with the queries, whose columns PARTS subgroups share, and as values with the
// weights.
//
// Matrices multiply f16: KV rows are stored as f16 or converted to it. Queries and weights are split into TERMS terms
// of f16: with two terms, products are as precise as those of f32.

// Drivers flush f16 below 6e-5 to zero: queries are multiplied by this, and weights by WEIGHT_UNIT, so that second
// terms are rarely so small.
const QUERY_UNIT = 16.0;
const KEY_STEPS = KV_ROW / (16u * PARTS);     // matrices of a key that a subgroup multiplies
const VALUE_TILES = RANK / (16u * SUBGROUPS); // matrices of a value for each subgroup
const PITCH = KV_ROW + 8u;                    // of a KV row in workgroup memory, so that rows are in different banks
const TILE_KV_ROWS = SPAN;
const QUERY_SHARE = ROWS * CHUNKS / WORKGROUP; // chunks of the queries that it loads
const WEIGHT_PITCH = SPAN + 8u;

var<storage, read> q: array<vec4<f32>>;
var<storage, read_write> parts: array<f32>;       // [row][head][split][rank]
var<storage, read_write> stats: array<vec2<f32>>; // [row][head][split]: reference score, sum of weights

var<workgroup> kv_rows: array<f16, SPAN * PITCH>;
var<workgroup> partial: array<f32, PARTS * ROWS * SPAN>;           // [part][head][KV row]: of the scores
var<workgroup> weights: array<f16, TERMS * ROWS * WEIGHT_PITCH>;   // [term][head][KV row]
var<workgroup> references: array<f32, ROWS>;
var<workgroup> totals: array<f32, ROWS>;
var<workgroup> rescales: array<f32, ROWS>;
// Matrices are loaded from multiples of 16 bytes. The order in which a driver places these arrays is unknown, so the
// size of each is a multiple of 16 bytes.
var<workgroup> any_rescale: vec4<u32>; // x: 1 if earlier sums must be rescaled
var<workgroup> bounds: vec4<u32>;      // x, y: of the split

// Stores a chunk of a row of a tile.
fn put_chunk(row: u32, chunk: u32, v: vec4<f16>) {
    let at = row * PITCH + 4u * chunk;
    for (var n = 0u; n < 4u; n++) {
        kv_rows[at + n] = v[n];
    }
}

// The leading bits of v, as many as f16 has. They are masked, because compilers remove a conversion to f16 and back.
fn leading(v: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(v) & 0xffffe000u);
}

// Term `term` of v: its leading bits, or the remainder.
fn term_of(v: vec4<f32>, term: u32) -> vec4<f16> {
    let first = vec4<f32>(leading(v.x), leading(v.y), leading(v.z), leading(v.w));
    return vec4<f16>(select(select(v, first, vec4<bool>(TERMS == 2u)), v - first, vec4<bool>(term == 1u)));
}

// An invocation's share of the queries. All of it is loaded before any is stored.
fn load_queries(first_head: u32, local: u32) -> array<vec4<f32>, QUERY_SHARE> {
    var share: array<vec4<f32>, QUERY_SHARE>;
    for (var n = 0u; n < QUERY_SHARE; n++) {
        share[n] = QUERY_UNIT * q[first_head * CHUNKS + local + n * WORKGROUP];
    }
    return share;
}

// Stores a term of them in the memory for KV rows.
fn put_queries(share: array<vec4<f32>, QUERY_SHARE>, term: u32, local: u32) {
    for (var n = 0u; n < QUERY_SHARE; n++) {
        let k = local + n * WORKGROUP;
        put_chunk(k / CHUNKS, k % CHUNKS, term_of(share[n], term));
    }
}

// Matrix `step` of a subgroup's columns of the queries, after put_queries.
fn query(part: u32, step: u32) -> Left {
    let at = 16u * (part * KEY_STEPS + step);
    let pitch = PITCH;
    return coopLoadT<Left>(&kv_rows[at], pitch);
}

// The scores plus what matrix `step` of the same columns of 16 keys adds to them.
fn with_keys(scores: Sums, first: Left, second: Left, tokens: u32, part: u32, step: u32) -> Sums {
    let at = tokens * PITCH + 16u * (part * KEY_STEPS + step);
    let pitch = PITCH;
    let keys = coopLoad<Right>(&kv_rows[at], pitch);
    let sum = coopMultiplyAdd(first, keys, scores);
    if TERMS == 2u {
        return coopMultiplyAdd(second, keys, sum);
    }
    return sum;
}

// The sums plus 16 weighted values, beginning at KV row 16k of the tile.
fn with_values(sums: Sums, shares: Left, k: u32, column: u32) -> Sums {
    let at = 16u * k * PITCH + 16u * column;
    let pitch = PITCH;
    let values = coopLoadT<Right>(&kv_rows[at], pitch);
    return coopMultiplyAdd(shares, values, sums);
}

// The sums, with each head's multiplied by its rescale. They go through the memory of the scores, which are no longer
// needed.
fn rescaled(sums: Sums, subgroup: u32, lane: u32) -> Sums {
    let scratch = 256u * subgroup;
    let pitch = 16u;
    workgroupBarrier();
    coopStoreT(sums, &partial[scratch], pitch);
    workgroupBarrier();
    for (var k = lane; k < 256u; k += 32u) {
        partial[scratch + k] *= rescales[k / 16u];
    }
    workgroupBarrier();
    return coopLoadT<Sums>(&partial[scratch], pitch);
}

// Writes sums as the output of 16 heads, beginning at `slot`, and 16 columns, beginning at 16 * column.
fn leave(sums: Sums, slot: u32, column: u32) {
    let to = slot * RANK + 16u * column;
    let pitch = split_count() * RANK;
    coopStoreT(sums, &parts[to], pitch);
}

// The first of a workgroup's heads, counted over all rows. The last workgroup's heads overlap those before.
fn first_head_of(workgroup: vec3<u32>) -> u32 {
    if TOGETHER {
        return min(workgroup.x * ROWS, row_count() * HEADS - ROWS);
    }
    return workgroup.z * HEADS + min(workgroup.x * ROWS, HEADS - ROWS);
}

// Turns the tile's scores into weights. Each team has one head, which attends to KV rows up to `end`.
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
    let reference = reference_after(before, top);
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
        let rescale = rescale_to(reference, before);
        references[h] = reference;
        rescales[h] = rescale;
        totals[h] = totals[h] * rescale + total;
        if has_to_rescale(reference, before) {
            any_rescale = vec4<u32>(1u);
        }
    }
}

// Matrices must be multiplied in control flow that the compiler can see to be uniform in the workgroup: bounds are
// loaded by workgroupUniformLoad, and builtin values are separate parameters, because a struct would have the
// uniformity of its least uniform member.
@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let workgroup = in_grid(id);
    let team = team_of(Invocation(id, local, subgroup, lane, 32u));
    let first_head = first_head_of(workgroup);
    let last_row = (first_head + ROWS - 1u) / HEADS; // of the batch, which attends to the most
    if local == 0u {
        var split = split_for(last_row, workgroup.y);
        if TOGETHER && workgroup.x * ROWS >= row_count() * HEADS {
            split = Split(0u, 0u);
        }
        bounds = vec4<u32>(split.start, split.end, 0u, 0u);
    }
    let uniform_bounds = workgroupUniformLoad(&bounds);
    let split = Split(uniform_bounds.x, uniform_bounds.y);
    if split.start >= split.end {
        return;
    }
    var own_end = split.end; // of the team's head
    if TOGETHER {
        own_end = min(split.end, attended_by((first_head + team.index) / HEADS));
    }
    let part = subgroup % PARTS;
    let tokens = 16u * (subgroup / PARTS); // first KV row of this subgroup's scores
    let column = subgroup * VALUE_TILES;   // this subgroup's first matrix of a value
    let first_page = first_page_of(last_row);
    let first_place = tile_place(first_page, split.start, split.end);
    var next_place = tile_place(first_page, split.start + SPAN, split.end);

    // Separate variables, because drivers keep arrays of matrices in slow memory.
    let queries = load_queries(first_head, local); // overlaps with looking up the first page
    put_queries(queries, 0u, local);
    var share = load_share(first_place, split.start, split.end, local);
    workgroupBarrier();
    var a0 = query(part, 0u);
    var a1: Left; var a2: Left; var a3: Left; var a4: Left; var a5: Left; var a6: Left; var a7: Left; var a8: Left;
    if KEY_STEPS > 1u { a1 = query(part, 1u); }
    if KEY_STEPS > 2u { a2 = query(part, 2u); }
    if KEY_STEPS > 3u { a3 = query(part, 3u); }
    if KEY_STEPS > 4u { a4 = query(part, 4u); }
    if KEY_STEPS > 5u { a5 = query(part, 5u); }
    if KEY_STEPS > 6u { a6 = query(part, 6u); }
    if KEY_STEPS > 7u { a7 = query(part, 7u); }
    if KEY_STEPS > 8u { a8 = query(part, 8u); }
    workgroupBarrier();
    var b0: Left; var b1: Left; var b2: Left; var b3: Left; var b4: Left; var b5: Left; var b6: Left; var b7: Left;
    var b8: Left;
    if TERMS == 2u {
        put_queries(queries, 1u, local);
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

    var sum0 = Sums(); var sum1 = Sums(); var sum2 = Sums(); var sum3 = Sums();
    for (var tile = split.start; tile < split.end; tile += SPAN) {
        put_share(share, 0u, local);
        if local == 0u {
            any_rescale = vec4<u32>(0u);
        }
        workgroupBarrier();
        share = load_share(next_place, tile + SPAN, split.end, local); // loading while this tile is computed
        // The list of pages is only read at the start of a page: reading it before every tile took 2 % of a token's
        // time with 32768 others in the cache.
        next_place += SPAN;
        if (tile + 2u * SPAN) % PAGE == 0u {
            next_place = tile_place(first_page, tile + 2u * SPAN, split.end);
        }

        var scores = Sums();
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
        weigh_tile(tile, own_end, team);

        // No invocation writes it again before the barrier at the end of the tile, so one barrier before the load
        // suffices here; workgroupUniformLoad has a second one after it.
        workgroupBarrier();
        if any_rescale.x == 1u {
            sum0 = rescaled(sum0, subgroup, lane);
            if VALUE_TILES > 1u { sum1 = rescaled(sum1, subgroup, lane); }
            if VALUE_TILES > 2u { sum2 = rescaled(sum2, subgroup, lane); }
            if VALUE_TILES > 3u { sum3 = rescaled(sum3, subgroup, lane); }
        }
        for (var k = 0u; k < SPAN / 16u; k++) {
            for (var term = 0u; term < TERMS; term++) {
                let from_weights = term * ROWS * WEIGHT_PITCH + 16u * k;
                let weight_pitch = WEIGHT_PITCH;
                let shares = coopLoadT<Left>(&weights[from_weights], weight_pitch);
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
