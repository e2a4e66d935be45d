// Attention as in mla_attention_batch, by cooperative matrices of 16 x 16, for ROWS = 64 rows. Of each tile of sixteen
// KV rows, a subgroup multiplies the keys' one half with sixteen of the rows, and the values' eighth with all of them.
// Matrices hold f16: queries and weights are rounded to it, sums are f32.
//
// What attention of a chunk by matrices keeps in workgroup memory, and the matrices made of it. Two tiles of kv_rows: one
// is multiplied while the next one comes. Arrays are of vectors of four, and so are pitches.
//
// Matrices are loaded from multiples of 16 bytes. Nothing says where a driver lays these arrays: each is of so many
// bytes that the next is at such a place, whichever it is.
//
// Weights of a tile of scores, for attention of a chunk by matrices: four invocations make those of a row.
//
// They are relative to a score that is at most MARGIN below the largest so far: only where one exceeds that by more
// are earlier sums brought down.

const ROWS = 64u;
const TILE = 16u;                                // KV rows
const CHUNKS = KV_ROW / 4u;                        // of a KV row
const PITCH = CHUNKS + 2u;                       // of a KV row in workgroup memory, so that rows fall on other banks
const SHARE = TILE * CHUNKS / WORKGROUP;         // chunks of a tile that an invocation loads
const KEY_STEPS = KV_ROW / 32u;                    // matrices of half a key
const VALUE_TILES = RANK / (16u * (WORKGROUP / 32u)); // matrices of a value that are a subgroup's
const QUERY_PITCH = CHUNKS / 2u;                 // of a query's every other matrix
const WEIGHT_PITCH = TILE / 4u + 2u;

var<storage, read> q: array<vec4<f32>>;

var<workgroup> kv_rows: array<vec4<f16>, 2u * TILE * PITCH>;
var<workgroup> partial: array<vec4<f32>, 2u * ROWS * TILE / 4u>; // [half][row][token]: of the scores
var<workgroup> weights: array<vec4<f16>, ROWS * WEIGHT_PITCH>;   // [row][token]
var<workgroup> rescales: array<f32, ROWS>; // what a row's earlier weights are multiplied with; at last, their sum
var<workgroup> exceeded: vec4<u32>;       // x: 1 if a row's earlier weights have to rescale
var<workgroup> bounds: vec4<u32>;         // of the workgroup's work: first KV row, end; its first row, the end of all

fn put_share(share: array<vec4<f16>, SHARE>, buffer: u32, local: u32) {
    for (var n = 0u; n < SHARE; n++) {
        let k = local + n * WORKGROUP;
        kv_rows[(buffer * TILE + k / CHUNKS) * PITCH + k % CHUNKS] = share[n];
    }
}

// Puts every other matrix of all queries, from number `odd` on, where the KV rows will be: half of them fit.
fn put_queries(first: u32, live: u32, odd: u32, local: u32) {
    for (var k = local; k < ROWS * QUERY_PITCH; k += WORKGROUP) {
        let row = min(first + k / QUERY_PITCH, live - 1u);
        let chunk = k % QUERY_PITCH;
        let values = q[row * CHUNKS + 4u * (chunk / 4u * 2u + odd) + chunk % 4u];
        kv_rows[k] = vec4<f16>(clamp(values, vec4<f32>(-65504.0), vec4<f32>(65504.0)));
    }
}

// Sixteen columns of a half of sixteen queries: matrix `step` of those that have been put.
fn query(rows: u32, half: u32, step: u32) -> coop_mat16x16<f16, A> {
    let at = 16u * rows * QUERY_PITCH + 4u * (half * KEY_STEPS / 2u + step);
    let pitch = QUERY_PITCH;
    return coopLoadT<coop_mat16x16<f16, A>>(&kv_rows[at], pitch);
}

// Scores, and what these columns add to them.
fn with_keys(
    scores: coop_mat16x16<f32, C>, queries: coop_mat16x16<f16, A>, buffer: u32, half: u32, step: u32,
) -> coop_mat16x16<f32, C> {
    let at = buffer * TILE * PITCH + 4u * (half * KEY_STEPS + step);
    let pitch = PITCH;
    let keys = coopLoad<coop_mat16x16<f16, B>>(&kv_rows[at], pitch);
    return coopMultiplyAdd(queries, keys, scores);
}

// Sums of sixteen rows from row 16 * tile on, each times what its earlier weights rescale by. Goes through the place of
// the scores, which are done with.
fn rescaled(sums: coop_mat16x16<f32, C>, tile: u32, subgroup: u32, lane: u32) -> coop_mat16x16<f32, C> {
    let scratch = 64u * subgroup;
    let pitch = 4u;
    workgroupBarrier();
    coopStoreT(sums, &partial[scratch], pitch);
    workgroupBarrier();
    for (var k = lane; k < 64u; k += 32u) {
        partial[scratch + k] *= rescales[16u * tile + k / 4u];
    }
    workgroupBarrier();
    return coopLoadT<coop_mat16x16<f32, C>>(&partial[scratch], pitch);
}

// Where the output goes: the workgroup's first row, one past the last of all rows, and the split.
struct Output {
    first_row: u32,
    live: u32,
    split: u32,
}

// Leaves sixteen rows of the output, from row 16 * tile of the workgroup's on, and sixteen columns. Invocation `i` is
// lane i % 32 of its subgroup.
fn leave(sums: coop_mat16x16<f32, C>, tile: u32, column: u32, output: Output, i: u32) {
    let scratch = 64u * (i / 32u);
    let pitch = 4u;
    workgroupBarrier();
    coopStoreT(sums, &partial[scratch], pitch);
    workgroupBarrier();
    for (var k = i % 32u; k < 64u; k += 32u) {
        let row = 16u * tile + k / 4u;
        if output.first_row + row < output.live {
            let chunk = 4u * column + k % 4u;
            leave_chunk(output.first_row + row, output.split, chunk, partial[scratch + k], rescales[row]);
        }
    }
}

// Leaves sixteen columns of all rows.
fn leave_column(
    first: coop_mat16x16<f32, C>, second: coop_mat16x16<f32, C>, third: coop_mat16x16<f32, C>,
    fourth: coop_mat16x16<f32, C>, column: u32, output: Output, i: u32,
) {
    leave(first, 0u, column, output, i);
    leave(second, 1u, column, output, i);
    leave(third, 2u, column, output, i);
    leave(fourth, 3u, column, output, i);
}

const LOWEST = -1e30; // below every score; finite, for fast-math compilers assume no infinity
const MARGIN = 6.0;
const WEIGHT_UNIT = 64.0; // drivers flush f16 below 6e-5 to zero; e^6 times this is far from what f16 can hold

// What an invocation knows of its row: four of them share one.
struct Softmax {
    seen: u32,      // KV rows up to the row's own token's
    reference: f32, // score that weights are relative to
    total: f32,     // of the weights that were this invocation's
}

// The largest of four neighbours' v, and the sum.
fn most_of_four(v: f32) -> f32 {
    let two = max(v, subgroupShuffleXor(v, 1u));
    return max(two, subgroupShuffleXor(two, 2u));
}

fn sum_of_four(v: f32) -> f32 {
    let two = v + subgroupShuffleXor(v, 1u);
    return two + subgroupShuffleXor(two, 2u);
}

// Makes weights of four scores of invocation `i`'s row.
fn weigh(row: ptr<function, Softmax>, tile: u32, i: u32) {
    let first = tile + 4u * (i % 4u);
    let sums = (partial[i] + partial[ROWS * TILE / 4u + i]) * SCALE;
    let places = vec4<u32>(first, first + 1u, first + 2u, first + 3u);
    let seen = places < vec4<u32>((*row).seen);
    let scores = select(vec4<f32>(LOWEST), sums, seen);
    let top = most_of_four(max(max(scores.x, scores.y), max(scores.z, scores.w)));
    let before = (*row).reference;
    let reference = select(before, top, top > before + MARGIN);
    let these = select(vec4<f32>(0.0), WEIGHT_UNIT * exp(scores - reference), seen);
    weights[i / 4u * WEIGHT_PITCH + i % 4u] = vec4<f16>(these);
    let rescale = exp(before - reference);
    (*row).reference = reference;
    (*row).total = (*row).total * rescale + dot(these, vec4<f32>(1.0));
    if i % 4u == 0u {
        rescales[i / 4u] = rescale;
        if reference != before && before > LOWEST { // of the first tile there are no earlier sums
            exceeded = vec4<u32>(1u);
        }
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let workgroup = in_grid(id);
    if local == 0u {
        let all = row_count() * HEADS;
        let blocks = (all + ROWS - 1u) / ROWS;
        let first = (blocks - 1u - min(workgroup.x, blocks - 1u)) * ROWS; // those that see most come first
        let split = split_of(workgroup.y, batch.longest);
        let seen = attended_by((min(first + ROWS, all) - 1u) / HEADS);
        bounds = vec4<u32>(split.start, select(0u, min(split.end, seen), workgroup.x < blocks), first, all);
    }
    let uniform_bounds = workgroupUniformLoad(&bounds);
    let start = uniform_bounds.x;
    let end = uniform_bounds.y;
    let first_row = uniform_bounds.z;
    let live = uniform_bounds.w;
    if start >= end {
        return;
    }
    let first_page = first_page_of(0u); // all rows are of one sequence
    let i = 32u * subgroup + lane;
    let token = min((first_row + i / 4u) / HEADS, row_count() - 1u);
    var row = Softmax(min(end, attended_by(token)), LOWEST, 0.0);
    let rows = subgroup % 4u;              // which sixteen of the rows
    let half = subgroup / 4u;              // and which half of the keys are this subgroup's
    let column = subgroup * VALUE_TILES;   // first of the matrices of a value that are
    // Matrices by name: drivers keep arrays of them where they are slow.
    var a0: coop_mat16x16<f16, A>;
    var a1: coop_mat16x16<f16, A>;
    var a2: coop_mat16x16<f16, A>;
    var a3: coop_mat16x16<f16, A>;
    var a4: coop_mat16x16<f16, A>;
    var a5: coop_mat16x16<f16, A>;
    var a6: coop_mat16x16<f16, A>;
    var a7: coop_mat16x16<f16, A>;
    var a8: coop_mat16x16<f16, A>;
    var a9: coop_mat16x16<f16, A>;
    var a10: coop_mat16x16<f16, A>;
    var a11: coop_mat16x16<f16, A>;
    var a12: coop_mat16x16<f16, A>;
    var a13: coop_mat16x16<f16, A>;
    var a14: coop_mat16x16<f16, A>;
    var a15: coop_mat16x16<f16, A>;
    var a16: coop_mat16x16<f16, A>;
    var a17: coop_mat16x16<f16, A>;
    put_queries(first_row, live, 0u, local);
    workgroupBarrier();
    a0 = query(rows, half, 0u);
    if KEY_STEPS > 2u { a2 = query(rows, half, 1u); }
    if KEY_STEPS > 4u { a4 = query(rows, half, 2u); }
    if KEY_STEPS > 6u { a6 = query(rows, half, 3u); }
    if KEY_STEPS > 8u { a8 = query(rows, half, 4u); }
    if KEY_STEPS > 10u { a10 = query(rows, half, 5u); }
    if KEY_STEPS > 12u { a12 = query(rows, half, 6u); }
    if KEY_STEPS > 14u { a14 = query(rows, half, 7u); }
    if KEY_STEPS > 16u { a16 = query(rows, half, 8u); }
    workgroupBarrier();
    put_queries(first_row, live, 1u, local);
    workgroupBarrier();
    a1 = query(rows, half, 0u);
    if KEY_STEPS > 2u { a3 = query(rows, half, 1u); }
    if KEY_STEPS > 4u { a5 = query(rows, half, 2u); }
    if KEY_STEPS > 6u { a7 = query(rows, half, 3u); }
    if KEY_STEPS > 8u { a9 = query(rows, half, 4u); }
    if KEY_STEPS > 10u { a11 = query(rows, half, 5u); }
    if KEY_STEPS > 12u { a13 = query(rows, half, 6u); }
    if KEY_STEPS > 14u { a15 = query(rows, half, 7u); }
    if KEY_STEPS > 16u { a17 = query(rows, half, 8u); }
    workgroupBarrier();
    put_share(load_share(tile_place(first_page, start, end), start, end, local), 0u, local);
    workgroupBarrier();

    var s00 = coop_mat16x16<f32, C>();
    var s01 = coop_mat16x16<f32, C>();
    var s02 = coop_mat16x16<f32, C>();
    var s03 = coop_mat16x16<f32, C>();
    var s10 = coop_mat16x16<f32, C>();
    var s11 = coop_mat16x16<f32, C>();
    var s12 = coop_mat16x16<f32, C>();
    var s13 = coop_mat16x16<f32, C>();
    var s20 = coop_mat16x16<f32, C>();
    var s21 = coop_mat16x16<f32, C>();
    var s22 = coop_mat16x16<f32, C>();
    var s23 = coop_mat16x16<f32, C>();
    var s30 = coop_mat16x16<f32, C>();
    var s31 = coop_mat16x16<f32, C>();
    var s32 = coop_mat16x16<f32, C>();
    var s33 = coop_mat16x16<f32, C>();
    var buffer = 0u;
    for (var tile = start; tile < end; tile += TILE) {
        let share = load_share(tile_place(first_page, tile + TILE, end), tile + TILE, end, local); // on its way while the keys are multiplied
        var scores = coop_mat16x16<f32, C>();
        var others = coop_mat16x16<f32, C>(); // two sums, for a product waits for the one before on the same
        scores = with_keys(scores, a0, buffer, half, 0u);
        others = with_keys(others, a1, buffer, half, 1u);
        if KEY_STEPS > 2u { scores = with_keys(scores, a2, buffer, half, 2u); others = with_keys(others, a3, buffer, half, 3u); }
        if KEY_STEPS > 4u { scores = with_keys(scores, a4, buffer, half, 4u); others = with_keys(others, a5, buffer, half, 5u); }
        if KEY_STEPS > 6u { scores = with_keys(scores, a6, buffer, half, 6u); others = with_keys(others, a7, buffer, half, 7u); }
        if KEY_STEPS > 8u { scores = with_keys(scores, a8, buffer, half, 8u); others = with_keys(others, a9, buffer, half, 9u); }
        if KEY_STEPS > 10u { scores = with_keys(scores, a10, buffer, half, 10u); others = with_keys(others, a11, buffer, half, 11u); }
        if KEY_STEPS > 12u { scores = with_keys(scores, a12, buffer, half, 12u); others = with_keys(others, a13, buffer, half, 13u); }
        if KEY_STEPS > 14u { scores = with_keys(scores, a14, buffer, half, 14u); others = with_keys(others, a15, buffer, half, 15u); }
        if KEY_STEPS > 16u { scores = with_keys(scores, a16, buffer, half, 16u); others = with_keys(others, a17, buffer, half, 17u); }
        let to = (half * ROWS + 16u * rows) * TILE / 4u;
        let tile_pitch = TILE / 4u;
        let both = scores + others;
        coopStoreT(both, &partial[to], tile_pitch);
        if local == 0u {
            exceeded = vec4<u32>(0u);
        }
        workgroupBarrier();
        put_share(share, 1u - buffer, local);
        weigh(&row, tile, i);
        if workgroupUniformLoad(&exceeded).x == 1u {
            s00 = rescaled(s00, 0u, subgroup, lane);
            s10 = rescaled(s10, 1u, subgroup, lane);
            s20 = rescaled(s20, 2u, subgroup, lane);
            s30 = rescaled(s30, 3u, subgroup, lane);
            if VALUE_TILES > 1u { s01 = rescaled(s01, 0u, subgroup, lane); }
            if VALUE_TILES > 1u { s11 = rescaled(s11, 1u, subgroup, lane); }
            if VALUE_TILES > 1u { s21 = rescaled(s21, 2u, subgroup, lane); }
            if VALUE_TILES > 1u { s31 = rescaled(s31, 3u, subgroup, lane); }
            if VALUE_TILES > 2u { s02 = rescaled(s02, 0u, subgroup, lane); }
            if VALUE_TILES > 2u { s12 = rescaled(s12, 1u, subgroup, lane); }
            if VALUE_TILES > 2u { s22 = rescaled(s22, 2u, subgroup, lane); }
            if VALUE_TILES > 2u { s32 = rescaled(s32, 3u, subgroup, lane); }
            if VALUE_TILES > 3u { s03 = rescaled(s03, 0u, subgroup, lane); }
            if VALUE_TILES > 3u { s13 = rescaled(s13, 1u, subgroup, lane); }
            if VALUE_TILES > 3u { s23 = rescaled(s23, 2u, subgroup, lane); }
            if VALUE_TILES > 3u { s33 = rescaled(s33, 3u, subgroup, lane); }
        }
        let weight_pitch = WEIGHT_PITCH;
        let pitch = PITCH;
        let from0 = 0u;
        let w0 = coopLoadT<coop_mat16x16<f16, A>>(&weights[from0], weight_pitch);
        let from1 = 16u * WEIGHT_PITCH;
        let w1 = coopLoadT<coop_mat16x16<f16, A>>(&weights[from1], weight_pitch);
        let from2 = 32u * WEIGHT_PITCH;
        let w2 = coopLoadT<coop_mat16x16<f16, A>>(&weights[from2], weight_pitch);
        let from3 = 48u * WEIGHT_PITCH;
        let w3 = coopLoadT<coop_mat16x16<f16, A>>(&weights[from3], weight_pitch);
        let at0 = buffer * TILE * PITCH + 4u * (column + 0u);
        let v0 = coopLoadT<coop_mat16x16<f16, B>>(&kv_rows[at0], pitch);
        s00 = coopMultiplyAdd(w0, v0, s00);
        s10 = coopMultiplyAdd(w1, v0, s10);
        s20 = coopMultiplyAdd(w2, v0, s20);
        s30 = coopMultiplyAdd(w3, v0, s30);
        if VALUE_TILES > 1u {
            let at1 = buffer * TILE * PITCH + 4u * (column + 1u);
            let v1 = coopLoadT<coop_mat16x16<f16, B>>(&kv_rows[at1], pitch);
            s01 = coopMultiplyAdd(w0, v1, s01);
            s11 = coopMultiplyAdd(w1, v1, s11);
            s21 = coopMultiplyAdd(w2, v1, s21);
            s31 = coopMultiplyAdd(w3, v1, s31);
        }
        if VALUE_TILES > 2u {
            let at2 = buffer * TILE * PITCH + 4u * (column + 2u);
            let v2 = coopLoadT<coop_mat16x16<f16, B>>(&kv_rows[at2], pitch);
            s02 = coopMultiplyAdd(w0, v2, s02);
            s12 = coopMultiplyAdd(w1, v2, s12);
            s22 = coopMultiplyAdd(w2, v2, s22);
            s32 = coopMultiplyAdd(w3, v2, s32);
        }
        if VALUE_TILES > 3u {
            let at3 = buffer * TILE * PITCH + 4u * (column + 3u);
            let v3 = coopLoadT<coop_mat16x16<f16, B>>(&kv_rows[at3], pitch);
            s03 = coopMultiplyAdd(w0, v3, s03);
            s13 = coopMultiplyAdd(w1, v3, s13);
            s23 = coopMultiplyAdd(w2, v3, s23);
            s33 = coopMultiplyAdd(w3, v3, s33);
        }
        buffer = 1u - buffer;
    }

    workgroupBarrier();
    let total = sum_of_four(row.total);
    if i % 4u == 0u {
        rescales[i / 4u] = total;
        if first_row + i / 4u < live {
            leave_stats(first_row + i / 4u, workgroup.y, row.reference, total);
        }
    }
    let output = Output(first_row, live, workgroup.y);
    leave_column(s00, s10, s20, s30, column + 0u, output, i);
    if VALUE_TILES > 1u { leave_column(s01, s11, s21, s31, column + 1u, output, i); }
    if VALUE_TILES > 2u { leave_column(s02, s12, s22, s32, column + 2u, output, i); }
    if VALUE_TILES > 3u { leave_column(s03, s13, s23, s33, column + 3u, output, i); }
}
