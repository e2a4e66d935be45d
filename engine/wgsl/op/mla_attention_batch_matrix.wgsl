// Attention as in op/mla_attention_batch.wgsl, with cooperative matrices of 16 x 16, for ROWS rows, which are 64. Of
// each tile of sixteen KV rows, a subgroup multiplies one half of the keys with sixteen of the rows, and an eighth of
// the values with all of them. Matrices are f16: queries and weights are rounded to it, and sums are f32. Workgroup
// memory has two tiles, one that is multiplied and one that is loading. Arrays there are of vec4s, and pitches count
// these.
//
// Matrices are loaded from multiples of 16 bytes. The order in which a driver places these arrays is unknown, so the
// size of each is a multiple of 16 bytes.
//
// LANES invocations, which are four, compute the weights of a row, each for four scores.

const TILE = 16u;                             // KV rows
const PITCH = CHUNKS + 2u;                    // of a KV row in workgroup memory, so that rows are in different banks
const TILE_KV_ROWS = TILE;
const KEY_STEPS = KV_ROW / 32u;               // matrices of half a key
const VALUE_TILES = RANK / (16u * SUBGROUPS); // matrices of a value for each subgroup
const QUERY_PITCH = CHUNKS / 2u;              // of a query's every other matrix
const WEIGHT_PITCH = TILE / 4u + 2u;

var<storage, read> q: array<vec4<f32>>;

var<workgroup> kv_rows: array<vec4<f16>, 2u * TILE * PITCH>;
var<workgroup> partial: array<vec4<f32>, 2u * ROWS * TILE / 4u>; // [half][row][KV row]: of the scores
var<workgroup> weights: array<vec4<f16>, ROWS * WEIGHT_PITCH>;   // [row][KV row]
var<workgroup> rescales: array<f32, ROWS>; // the factor on a row's earlier weights; in the end, their sum
var<workgroup> any_rescale: vec4<u32>;     // x: 1 if earlier sums must be rescaled
var<workgroup> bounds: vec4<u32>;          // of the workgroup's work: first KV row, end; its first row, the end of all

// Stores a chunk of a KV row. The second tile's rows follow the first one's.
fn put_chunk(row: u32, chunk: u32, v: vec4<f16>) {
    kv_rows[row * PITCH + chunk] = v;
}

// Stores every other matrix of all queries, beginning with number `odd`, in the memory for KV rows. Only half of them
// fit there.
fn put_queries(first: u32, live: u32, odd: u32, local: u32) {
    for (var k = local; k < ROWS * QUERY_PITCH; k += WORKGROUP) {
        let row = min(first + k / QUERY_PITCH, live - 1u);
        let chunk = k % QUERY_PITCH;
        let values = q[row * CHUNKS + 4u * (chunk / 4u * 2u + odd) + chunk % 4u];
        kv_rows[k] = vec4<f16>(values);
    }
}

// Sixteen columns of a half of sixteen queries: matrix `step` of those that were stored.
fn query(rows: u32, half: u32, step: u32) -> Left {
    let at = 16u * rows * QUERY_PITCH + 4u * (half * KEY_STEPS / 2u + step);
    let pitch = QUERY_PITCH;
    return coopLoadT<Left>(&kv_rows[at], pitch);
}

// The scores plus what the keys' sixteen columns, beginning at `at`, add to them.
fn with_keys(scores: Sums, queries: Left, at: u32) -> Sums {
    let pitch = PITCH;
    let keys = coopLoad<Right>(&kv_rows[at], pitch);
    return coopMultiplyAdd(queries, keys, scores);
}

// The sums of sixteen rows, beginning at row 16 * tile, each multiplied by its rescale. They go through the memory of
// the scores, which are no longer needed.
fn rescaled(sums: Sums, tile: u32, subgroup: u32, lane: u32) -> Sums {
    let scratch = 64u * subgroup;
    let pitch = 4u;
    workgroupBarrier();
    coopStoreT(sums, &partial[scratch], pitch);
    workgroupBarrier();
    for (var k = lane; k < 64u; k += 32u) {
        partial[scratch + k] *= rescales[16u * tile + k / 4u];
    }
    workgroupBarrier();
    return coopLoadT<Sums>(&partial[scratch], pitch);
}

// The same for the sums of sixteen columns of all rows.
fn rescale(
    s0: ptr<function, Sums>, s1: ptr<function, Sums>, s2: ptr<function, Sums>, s3: ptr<function, Sums>,
    subgroup: u32, lane: u32,
) {
    *s0 = rescaled(*s0, 0u, subgroup, lane);
    *s1 = rescaled(*s1, 1u, subgroup, lane);
    *s2 = rescaled(*s2, 2u, subgroup, lane);
    *s3 = rescaled(*s3, 3u, subgroup, lane);
}

// The weights of sixteen rows, beginning at row 16 * tile.
fn weights_of(tile: u32) -> Left {
    let from_weights = 16u * tile * WEIGHT_PITCH;
    let pitch = WEIGHT_PITCH;
    return coopLoadT<Left>(&weights[from_weights], pitch);
}

// Adds a tile's weighted values, beginning at `at`, to sums of sixteen columns of all rows.
fn add_values(
    s0: ptr<function, Sums>, s1: ptr<function, Sums>, s2: ptr<function, Sums>, s3: ptr<function, Sums>,
    w0: Left, w1: Left, w2: Left, w3: Left, at: u32,
) {
    let pitch = PITCH;
    let values = coopLoadT<Right>(&kv_rows[at], pitch);
    *s0 = coopMultiplyAdd(w0, values, *s0);
    *s1 = coopMultiplyAdd(w1, values, *s1);
    *s2 = coopMultiplyAdd(w2, values, *s2);
    *s3 = coopMultiplyAdd(w3, values, *s3);
}

// Where the output goes: the workgroup's first row, one past the last of all rows, and the split.
struct Output {
    first_row: u32,
    live: u32,
    split: u32,
}

// Writes sixteen rows, beginning at the workgroup's row 16 * tile, and sixteen columns of the output. Invocation `i` is
// lane i % 32 of its subgroup.
fn leave(sums: Sums, tile: u32, column: u32, output: Output, i: u32) {
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

// Writes sixteen columns of all rows.
fn leave_column(first: Sums, second: Sums, third: Sums, fourth: Sums, column: u32, output: Output, i: u32) {
    leave(first, 0u, column, output, i);
    leave(second, 1u, column, output, i);
    leave(third, 2u, column, output, i);
    leave(fourth, 3u, column, output, i);
}

// Turns four scores of invocation `i`'s row into weights.
fn weigh(row: ptr<function, Softmax>, tile: u32, i: u32) {
    let first = tile + 4u * (i % 4u);
    let sums = (partial[i] + partial[ROWS * TILE / 4u + i]) * SCALE;
    let places = vec4<u32>(first, first + 1u, first + 2u, first + 3u);
    let seen = places < vec4<u32>((*row).seen);
    let scores = select(vec4<f32>(LOWEST), sums, seen);
    let top = row_max(max(max(scores.x, scores.y), max(scores.z, scores.w)));
    let before = (*row).reference;
    let reference = reference_after(before, top);
    let these = select(vec4<f32>(0.0), WEIGHT_UNIT * exp(scores - reference), seen);
    weights[i / 4u * WEIGHT_PITCH + i % 4u] = vec4<f16>(these);
    let rescale = rescale_to(reference, before);
    (*row).reference = reference;
    (*row).total = (*row).total * rescale + dot(these, vec4<f32>(1.0));
    if i % 4u == 0u {
        rescales[i / 4u] = rescale;
        if has_to_rescale(reference, before) {
            any_rescale = vec4<u32>(1u);
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
        let first = (blocks - 1u - min(workgroup.x, blocks - 1u)) * ROWS; // those that attend to most come first
        let split = split_of(first / HEADS, workgroup.y, longest_of(first / HEADS));
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
    let first_page = first_page_of(first_row / HEADS); // of the sequence that all of its rows belong to
    let i = 32u * subgroup + lane;
    let token = min((first_row + i / 4u) / HEADS, row_count() - 1u);
    var row = Softmax(min(end, attended_by(token)), LOWEST, 0.0);
    let rows = subgroup % 4u;              // which sixteen of the rows
    let half = subgroup / 4u;              // and which half of the keys are this subgroup's
    let column = subgroup * VALUE_TILES;   // first of the matrices of a value that are
    // Separate variables, because drivers keep arrays of matrices in slow memory.
    var a0: Left; var a1: Left; var a2: Left; var a3: Left; var a4: Left; var a5: Left;
    var a6: Left; var a7: Left; var a8: Left; var a9: Left; var a10: Left; var a11: Left;
    var a12: Left; var a13: Left; var a14: Left; var a15: Left; var a16: Left; var a17: Left;
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

    var s00 = Sums(); var s01 = Sums(); var s02 = Sums(); var s03 = Sums();
    var s10 = Sums(); var s11 = Sums(); var s12 = Sums(); var s13 = Sums();
    var s20 = Sums(); var s21 = Sums(); var s22 = Sums(); var s23 = Sums();
    var s30 = Sums(); var s31 = Sums(); var s32 = Sums(); var s33 = Sums();
    var buffer = 0u;
    for (var tile = start; tile < end; tile += TILE) {
        let next = tile + TILE; // loading while the keys of this tile are multiplied
        let share = load_share(tile_place(first_page, next, end), next, end, local);
        let keys = buffer * TILE * PITCH + 4u * half * KEY_STEPS; // the start of its half of the first key
        var scores = Sums();
        var others = Sums(); // two sums, because a product waits for the previous one to the same sum
        scores = with_keys(scores, a0, keys);
        others = with_keys(others, a1, keys + 4u);
        if KEY_STEPS > 2u { scores = with_keys(scores, a2, keys + 8u); others = with_keys(others, a3, keys + 12u); }
        if KEY_STEPS > 4u { scores = with_keys(scores, a4, keys + 16u); others = with_keys(others, a5, keys + 20u); }
        if KEY_STEPS > 6u { scores = with_keys(scores, a6, keys + 24u); others = with_keys(others, a7, keys + 28u); }
        if KEY_STEPS > 8u { scores = with_keys(scores, a8, keys + 32u); others = with_keys(others, a9, keys + 36u); }
        if KEY_STEPS > 10u { scores = with_keys(scores, a10, keys + 40u); others = with_keys(others, a11, keys + 44u); }
        if KEY_STEPS > 12u { scores = with_keys(scores, a12, keys + 48u); others = with_keys(others, a13, keys + 52u); }
        if KEY_STEPS > 14u { scores = with_keys(scores, a14, keys + 56u); others = with_keys(others, a15, keys + 60u); }
        if KEY_STEPS > 16u { scores = with_keys(scores, a16, keys + 64u); others = with_keys(others, a17, keys + 68u); }
        let to = (half * ROWS + 16u * rows) * TILE / 4u;
        let tile_pitch = TILE / 4u;
        let both = scores + others;
        coopStoreT(both, &partial[to], tile_pitch);
        if local == 0u {
            any_rescale = vec4<u32>(0u);
        }
        workgroupBarrier();
        put_share(share, (1u - buffer) * TILE, local);
        weigh(&row, tile, i);
        if workgroupUniformLoad(&any_rescale).x == 1u {
            rescale(&s00, &s10, &s20, &s30, subgroup, lane);
            if VALUE_TILES > 1u { rescale(&s01, &s11, &s21, &s31, subgroup, lane); }
            if VALUE_TILES > 2u { rescale(&s02, &s12, &s22, &s32, subgroup, lane); }
            if VALUE_TILES > 3u { rescale(&s03, &s13, &s23, &s33, subgroup, lane); }
        }
        let w0 = weights_of(0u);
        let w1 = weights_of(1u);
        let w2 = weights_of(2u);
        let w3 = weights_of(3u);
        let at = buffer * TILE * PITCH + 4u * column;
        add_values(&s00, &s10, &s20, &s30, w0, w1, w2, w3, at);
        if VALUE_TILES > 1u { add_values(&s01, &s11, &s21, &s31, w0, w1, w2, w3, at + 4u); }
        if VALUE_TILES > 2u { add_values(&s02, &s12, &s22, &s32, w0, w1, w2, w3, at + 8u); }
        if VALUE_TILES > 3u { add_values(&s03, &s13, &s23, &s33, w0, w1, w2, w3, at + 12u); }
        buffer = 1u - buffer;
    }

    workgroupBarrier();
    let total = row_sum(row.total);
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
