// Attention over a part of the KV rows with cooperative matrices of 8 x 8, as on Metal, for one row of a batch, for a
// few, or for many: over the latents, or over a segment of expanded keys and values. lib/over_*.wgsl defines the parts,
// and what a row is here. A workgroup computes ROWS of them, eight or sixteen. It loads TILE KV rows to its memory at a
// time, which are multiplied as keys with the queries, and as values with the weights. Its subgroups share the columns:
// from the keys' columns each computes a part of the scores, and these are summed; from the values' columns each
// computes its own outputs. A row attends to the KV rows up to its own token's, with online softmax.
//
// Metal loads matrices of 8 x 8 only from arrays of scalars.

alias Left = coop_mat8x8<Operand, A>;
alias Right = coop_mat8x8<Operand, B>;
alias Sums = coop_mat8x8<f32, C>;

const KEY_STEPS = KEY_FOURS / (2u * SUBGROUPS);     // matrices of a key for each subgroup
const VALUE_TILES = VALUE_FOURS / (2u * SUBGROUPS); // and of a value
const PITCH = KV_ROW + (40u - KV_ROW % 32u) % 32u;  // of a KV row in memory, so that rows are in different banks
const TILE_KV_ROWS = TILE;
const SCRATCH = ROWS * TILE;                        // a subgroup's own part of `partial`

var<workgroup> kv_rows: array<Operand, TILE * PITCH>;
var<workgroup> partial: array<f32, SUBGROUPS * SCRATCH>; // [subgroup][row][KV row]: of the scores
var<workgroup> weights: array<Operand, ROWS * TILE>;     // [row][KV row]
// The factor on a row's earlier weights; in the end, their sum: bits of f32, which one lane writes for all.
var<workgroup> rescales: array<atomic<u32>, ROWS>;
var<workgroup> any_rescale: atomic<u32>; // 1 if earlier sums must be rescaled
var<workgroup> bounds: vec4<u32>;        // of the workgroup's work, which every invocation writes

// The workgroup's part of the work.
struct Work {
    first_row: u32,
    live: u32,  // one past the last row of all
    start: u32, // first KV row
    end: u32,   // one past the last that any row attends to; at most start if there is nothing to do
}

fn put(kv_row: u32, chunk: u32, v: vec4<f32>) {
    let at = kv_row * PITCH + 4u * chunk;
    kv_rows[at] = operand(v.x);
    kv_rows[at + 1u] = operand(v.y);
    kv_rows[at + 2u] = operand(v.z);
    kv_rows[at + 3u] = operand(v.w);
}

// Stores a chunk of a KV row of a tile.
fn put_chunk(kv_row: u32, chunk: u32, v: vec4<f16>) {
    put(kv_row, chunk, vec4<f32>(v));
}

// Stores the queries of eight rows in the memory for KV rows. Rows past the last repeat it.
fn put_queries(first: u32, live: u32, part: u32, i: u32) {
    for (var k = i; k < 8u * KEY_FOURS; k += WORKGROUP) {
        let row = k / KEY_FOURS;
        put(row, k % KEY_FOURS, query_chunk(min(first + row, live - 1u), part, k % KEY_FOURS));
    }
}

// Matrix `step` of a subgroup's columns of the queries, after put_queries.
fn query(subgroup: u32, step: u32) -> Left {
    let at = 8u * (subgroup * KEY_STEPS + step);
    let pitch = PITCH;
    return coopLoadT<Left>(&kv_rows[at], pitch);
}

// Adds the products of eight columns, beginning at `at`, to the scores of eight KV rows, for eight rows or, in the
// second function, for sixteen.
fn add_keys(scores: ptr<function, Sums>, queries: Left, at: u32) {
    let pitch = PITCH;
    let keys = coopLoad<Right>(&kv_rows[at], pitch);
    *scores = coopMultiplyAdd(queries, keys, *scores);
}

fn add_keys_to_both(scores: ptr<function, Sums>, others: ptr<function, Sums>, first: Left, second: Left, at: u32) {
    let pitch = PITCH;
    let keys = coopLoad<Right>(&kv_rows[at], pitch);
    *scores = coopMultiplyAdd(first, keys, *scores);
    *others = coopMultiplyAdd(second, keys, *others);
}

// Adds the weighted values of eight KV rows, in eight columns that begin at `at`, to sums.
fn add_values(sums: ptr<function, Sums>, shares: Left, at: u32) {
    let pitch = PITCH;
    let values = coopLoadT<Right>(&kv_rows[at], pitch);
    *sums = coopMultiplyAdd(shares, values, *sums);
}

fn add_values_to_both(sums: ptr<function, Sums>, others: ptr<function, Sums>, first: Left, second: Left, at: u32) {
    let pitch = PITCH;
    let values = coopLoadT<Right>(&kv_rows[at], pitch);
    *sums = coopMultiplyAdd(first, values, *sums);
    *others = coopMultiplyAdd(second, values, *others);
}

// Turns the tile's scores of invocation i's row into weights. There are `rows` rows. Invocations past the last row
// compute the same as its own, but write nothing.
fn weigh(row: ptr<function, Softmax>, tile: u32, rows: u32, i: u32) {
    let r = min(i / LANES, rows - 1u);
    var scores: array<f32, TILE / LANES>;
    var largest = LOWEST;
    for (var n = 0u; n < TILE / LANES; n++) {
        let t = i % LANES + n * LANES;
        var score = 0.0;
        for (var part = 0u; part < SUBGROUPS; part++) {
            score += partial[part * SCRATCH + r * TILE + t];
        }
        scores[n] = select(LOWEST, SCALE * score, tile + t < (*row).seen);
        largest = max(largest, scores[n]);
    }
    let top = row_max(largest);
    let before = (*row).reference;
    let reference = reference_after(before, top);
    let rescale = rescale_to(reference, before);
    var total = (*row).total * rescale;
    for (var n = 0u; n < TILE / LANES; n++) {
        let unseen = scores[n] == LOWEST; // a row may attend to nothing in a tile
        let weight = select(WEIGHT_UNIT * exp(scores[n] - reference), 0.0, unseen);
        if i / LANES < rows {
            weights[r * TILE + i % LANES + n * LANES] = operand(weight);
        }
        total += weight;
    }
    if i / LANES < rows && i % LANES == 0u {
        atomicStore(&rescales[r], bitcast<u32>(rescale));
        if has_to_rescale(reference, before) {
            atomicStore(&any_rescale, 1u);
        }
    }
    (*row).reference = reference;
    (*row).total = total;
}

// Multiplies each row's sums in the same columns with its rescale. They go through the memory of the scores, which are
// no longer needed.
fn rescale(sums: ptr<function, Sums>, others: ptr<function, Sums>, subgroup: u32, lane: u32) {
    let scratch = SCRATCH * subgroup;
    let second = scratch + 64u;
    let pitch = 8u;
    workgroupBarrier();
    coopStoreT(*sums, &partial[scratch], pitch);
    if ROWS > 8u { coopStoreT(*others, &partial[second], pitch); }
    workgroupBarrier();
    for (var k = lane; k < 8u * ROWS; k += 32u) {
        partial[scratch + k] *= bitcast<f32>(atomicLoad(&rescales[k / 8u]));
    }
    workgroupBarrier();
    *sums = coopLoadT<Sums>(&partial[scratch], pitch);
    if ROWS > 8u { *others = coopLoadT<Sums>(&partial[second], pitch); }
}

// The sums of eight columns of all rows, beginning at column 8 * column, from earlier steps.
fn resume(sums: ptr<function, Sums>, others: ptr<function, Sums>, column: u32, part: u32, work: Work, i: u32) {
    let scratch = SCRATCH * (i / 32u);
    let second = scratch + 64u;
    let pitch = 8u;
    workgroupBarrier();
    for (var k = i % 32u; k < 2u * ROWS; k += 32u) {
        let chunk = left_chunk(min(work.first_row + k / 2u, work.live - 1u), part, 2u * column + k % 2u);
        partial[scratch + 4u * k] = chunk.x;
        partial[scratch + 4u * k + 1u] = chunk.y;
        partial[scratch + 4u * k + 2u] = chunk.z;
        partial[scratch + 4u * k + 3u] = chunk.w;
    }
    workgroupBarrier();
    *sums = coopLoadT<Sums>(&partial[scratch], pitch);
    if ROWS > 8u { *others = coopLoadT<Sums>(&partial[second], pitch); }
}

// Writes eight columns of all rows, beginning at column 8 * column. `rescales` has the rows' sums of weights.
fn leave(sums: Sums, others: Sums, column: u32, part: u32, work: Work, i: u32) {
    let scratch = SCRATCH * (i / 32u);
    let second = scratch + 64u;
    let pitch = 8u;
    workgroupBarrier();
    coopStoreT(sums, &partial[scratch], pitch);
    if ROWS > 8u { coopStoreT(others, &partial[second], pitch); }
    workgroupBarrier();
    for (var k = i % 32u; k < 2u * ROWS; k += 32u) {
        let row = work.first_row + k / 2u;
        let at = scratch + 4u * k;
        if row < work.live {
            let chunk = vec4<f32>(partial[at], partial[at + 1u], partial[at + 2u], partial[at + 3u]);
            let total = bitcast<f32>(atomicLoad(&rescales[k / 2u]));
            leave_chunk(row, part, 2u * column + k % 2u, chunk, total);
        }
    }
}

fn work_of(workgroup: vec3<u32>) -> Work {
    let live = live_rows();
    let blocks = (live + ROWS - 1u) / ROWS;
    let first_row = (blocks - 1u - min(workgroup.x, blocks - 1u)) * ROWS; // those that attend to most come first
    let split = part_of(workgroup, first_row);
    let seen = seen_by(min(first_row + ROWS, live) - 1u);
    return Work(first_row, live, split.start, select(0u, min(split.end, seen), workgroup.x < blocks));
}

// Matrices must be multiplied in control flow that is uniform in the workgroup, so conditions are loaded by
// workgroupUniformLoad.
@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let workgroup = in_grid(id);
    let own = work_of(workgroup);
    bounds = vec4<u32>(own.first_row, own.live, own.start, own.end);
    let uniform_bounds = workgroupUniformLoad(&bounds);
    let work = Work(uniform_bounds.x, uniform_bounds.y, uniform_bounds.z, uniform_bounds.w);
    if work.start >= work.end {
        return;
    }
    let part = workgroup.y;
    let tiles = tiles_of(part, work.first_row);
    let i = 32u * subgroup + lane;
    let both = select(false, work.first_row + 8u < work.live, ROWS > 8u); // whether there are more than eight rows
    let rows = select(8u, 16u, both);
    let own_row = work.first_row + min(i / LANES, rows - 1u);
    var row = Softmax(min(work.end, seen_by(own_row)), LOWEST, 0.0);
    let keys = 8u * KEY_STEPS * subgroup; // this subgroup's first column of a key
    let values = 4u * VALUE_FROM + 8u * VALUE_TILES * subgroup; // and of a value
    var share = load_share(tile_place(tiles, work.start, work.end), work.start, work.end, i);

    // Separate variables, because compilers keep arrays of matrices in slow memory.
    put_queries(work.first_row, work.live, part, i);
    workgroupBarrier();
    var a0 = query(subgroup, 0u);
    var a1: Left; var a2: Left; var a3: Left; var a4: Left; var a5: Left; var a6: Left; var a7: Left; var a8: Left;
    if KEY_STEPS > 1u { a1 = query(subgroup, 1u); }
    if KEY_STEPS > 2u { a2 = query(subgroup, 2u); }
    if KEY_STEPS > 3u { a3 = query(subgroup, 3u); }
    if KEY_STEPS > 4u { a4 = query(subgroup, 4u); }
    if KEY_STEPS > 5u { a5 = query(subgroup, 5u); }
    if KEY_STEPS > 6u { a6 = query(subgroup, 6u); }
    if KEY_STEPS > 7u { a7 = query(subgroup, 7u); }
    if KEY_STEPS > 8u { a8 = query(subgroup, 8u); }
    workgroupBarrier();
    var b0: Left; var b1: Left; var b2: Left; var b3: Left; var b4: Left; var b5: Left; var b6: Left; var b7: Left;
    var b8: Left;
    if both {
        put_queries(work.first_row + 8u, work.live, part, i);
        workgroupBarrier();
        b0 = query(subgroup, 0u);
        if KEY_STEPS > 1u { b1 = query(subgroup, 1u); }
        if KEY_STEPS > 2u { b2 = query(subgroup, 2u); }
        if KEY_STEPS > 3u { b3 = query(subgroup, 3u); }
        if KEY_STEPS > 4u { b4 = query(subgroup, 4u); }
        if KEY_STEPS > 5u { b5 = query(subgroup, 5u); }
        if KEY_STEPS > 6u { b6 = query(subgroup, 6u); }
        if KEY_STEPS > 7u { b7 = query(subgroup, 7u); }
        if KEY_STEPS > 8u { b8 = query(subgroup, 8u); }
        workgroupBarrier();
    }

    // Sums of the first eight rows, and of the others.
    var s00 = Sums(); var s01 = Sums(); var s02 = Sums(); var s03 = Sums();
    var s04 = Sums(); var s05 = Sums(); var s06 = Sums(); var s07 = Sums();
    var s10 = Sums(); var s11 = Sums(); var s12 = Sums(); var s13 = Sums();
    var s14 = Sums(); var s15 = Sums(); var s16 = Sums(); var s17 = Sums();
    let column = VALUE_TILES * subgroup;
    if RESUMES && work.start > 0u {
        let left = left_stats(min(own_row, work.live - 1u), part);
        row.reference = left.x;
        row.total = select(0.0, left.y, i % LANES == 0u);
        resume(&s00, &s10, column, part, work, i);
        if VALUE_TILES > 1u { resume(&s01, &s11, column + 1u, part, work, i); }
        if VALUE_TILES > 2u { resume(&s02, &s12, column + 2u, part, work, i); }
        if VALUE_TILES > 3u { resume(&s03, &s13, column + 3u, part, work, i); }
        if VALUE_TILES > 4u { resume(&s04, &s14, column + 4u, part, work, i); }
        if VALUE_TILES > 5u { resume(&s05, &s15, column + 5u, part, work, i); }
        if VALUE_TILES > 6u { resume(&s06, &s16, column + 6u, part, work, i); }
        if VALUE_TILES > 7u { resume(&s07, &s17, column + 7u, part, work, i); }
    }
    for (var tile = work.start; tile < work.end; tile += TILE) {
        put_share(share, 0u, i);
        if i == 0u {
            atomicStore(&any_rescale, 0u);
        }
        workgroupBarrier();
        let next = tile + TILE; // loading while this tile is computed
        share = load_share(tile_place(tiles, next, work.end), next, work.end, i);
        for (var t = 0u; t < TILE; t += 8u) {
            let at = t * PITCH + keys;
            let to = SCRATCH * subgroup + t;
            let second = to + 8u * TILE;
            let pitch = TILE;
            var scores = Sums();
            if both {
                var others = Sums();
                add_keys_to_both(&scores, &others, a0, b0, at);
                if KEY_STEPS > 1u { add_keys_to_both(&scores, &others, a1, b1, at + 8u); }
                if KEY_STEPS > 2u { add_keys_to_both(&scores, &others, a2, b2, at + 16u); }
                if KEY_STEPS > 3u { add_keys_to_both(&scores, &others, a3, b3, at + 24u); }
                if KEY_STEPS > 4u { add_keys_to_both(&scores, &others, a4, b4, at + 32u); }
                if KEY_STEPS > 5u { add_keys_to_both(&scores, &others, a5, b5, at + 40u); }
                if KEY_STEPS > 6u { add_keys_to_both(&scores, &others, a6, b6, at + 48u); }
                if KEY_STEPS > 7u { add_keys_to_both(&scores, &others, a7, b7, at + 56u); }
                if KEY_STEPS > 8u { add_keys_to_both(&scores, &others, a8, b8, at + 64u); }
                coopStoreT(others, &partial[second], pitch);
            } else {
                add_keys(&scores, a0, at);
                if KEY_STEPS > 1u { add_keys(&scores, a1, at + 8u); }
                if KEY_STEPS > 2u { add_keys(&scores, a2, at + 16u); }
                if KEY_STEPS > 3u { add_keys(&scores, a3, at + 24u); }
                if KEY_STEPS > 4u { add_keys(&scores, a4, at + 32u); }
                if KEY_STEPS > 5u { add_keys(&scores, a5, at + 40u); }
                if KEY_STEPS > 6u { add_keys(&scores, a6, at + 48u); }
                if KEY_STEPS > 7u { add_keys(&scores, a7, at + 56u); }
                if KEY_STEPS > 8u { add_keys(&scores, a8, at + 64u); }
            }
            coopStoreT(scores, &partial[to], pitch);
        }
        workgroupBarrier();
        weigh(&row, tile, rows, i);
        workgroupBarrier();
        if atomicLoad(&any_rescale) == 1u {
            rescale(&s00, &s10, subgroup, lane);
            if VALUE_TILES > 1u { rescale(&s01, &s11, subgroup, lane); }
            if VALUE_TILES > 2u { rescale(&s02, &s12, subgroup, lane); }
            if VALUE_TILES > 3u { rescale(&s03, &s13, subgroup, lane); }
            if VALUE_TILES > 4u { rescale(&s04, &s14, subgroup, lane); }
            if VALUE_TILES > 5u { rescale(&s05, &s15, subgroup, lane); }
            if VALUE_TILES > 6u { rescale(&s06, &s16, subgroup, lane); }
            if VALUE_TILES > 7u { rescale(&s07, &s17, subgroup, lane); }
        }
        for (var t = 0u; t < TILE; t += 8u) {
            let at = t * PITCH + values;
            let second = t + 8u * TILE;
            let pitch = TILE;
            let first = coopLoadT<Left>(&weights[t], pitch);
            if both {
                let other = coopLoadT<Left>(&weights[second], pitch);
                add_values_to_both(&s00, &s10, first, other, at);
                if VALUE_TILES > 1u { add_values_to_both(&s01, &s11, first, other, at + 8u); }
                if VALUE_TILES > 2u { add_values_to_both(&s02, &s12, first, other, at + 16u); }
                if VALUE_TILES > 3u { add_values_to_both(&s03, &s13, first, other, at + 24u); }
                if VALUE_TILES > 4u { add_values_to_both(&s04, &s14, first, other, at + 32u); }
                if VALUE_TILES > 5u { add_values_to_both(&s05, &s15, first, other, at + 40u); }
                if VALUE_TILES > 6u { add_values_to_both(&s06, &s16, first, other, at + 48u); }
                if VALUE_TILES > 7u { add_values_to_both(&s07, &s17, first, other, at + 56u); }
            } else {
                add_values(&s00, first, at);
                if VALUE_TILES > 1u { add_values(&s01, first, at + 8u); }
                if VALUE_TILES > 2u { add_values(&s02, first, at + 16u); }
                if VALUE_TILES > 3u { add_values(&s03, first, at + 24u); }
                if VALUE_TILES > 4u { add_values(&s04, first, at + 32u); }
                if VALUE_TILES > 5u { add_values(&s05, first, at + 40u); }
                if VALUE_TILES > 6u { add_values(&s06, first, at + 48u); }
                if VALUE_TILES > 7u { add_values(&s07, first, at + 56u); }
            }
        }
        workgroupBarrier(); // KV rows and weights are read before the next tile overwrites them
    }

    let total = row_sum(row.total);
    if i / LANES < rows && i % LANES == 0u {
        atomicStore(&rescales[i / LANES], bitcast<u32>(total));
        if work.first_row + i / LANES < work.live {
            leave_stats(work.first_row + i / LANES, part, row.reference, total);
        }
    }
    leave(s00, s10, column, part, work, i);
    if VALUE_TILES > 1u { leave(s01, s11, column + 1u, part, work, i); }
    if VALUE_TILES > 2u { leave(s02, s12, column + 2u, part, work, i); }
    if VALUE_TILES > 3u { leave(s03, s13, column + 3u, part, work, i); }
    if VALUE_TILES > 4u { leave(s04, s14, column + 4u, part, work, i); }
    if VALUE_TILES > 5u { leave(s05, s15, column + 5u, part, work, i); }
    if VALUE_TILES > 6u { leave(s06, s16, column + 6u, part, work, i); }
    if VALUE_TILES > 7u { leave(s07, s17, column + 7u, part, work, i); }
}
