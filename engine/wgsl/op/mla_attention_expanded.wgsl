// Attention of many rows of one sequence over keys and values that op/expand_kv.wgsl has expanded for a segment of the
// KV rows, with cooperative matrices of 16 x 16. A workgroup computes ROWS rows of one head, and each of its subgroups
// sixteen of them. Matrices are f16, and sums are f32.
//
// The sums over earlier segments are in the output, not divided yet, with the score that they are relative to and the
// sum of weights stored beside it. A workgroup continues from there and writes the same; for the last segment that its
// rows attend to, it divides the output. So the memory of a batch does not grow with the cache.
//
// Workgroup memory has two tiles of sixteen KV rows, one that is multiplied and one that is loading. Matrices are
// loaded from multiples of 16 bytes, so the size of each array is a multiple of 16 bytes. LANES invocations, which are
// two, compute the weights of a row, each for eight scores.

const TILE = 16u; // KV rows
const ROWS = 16u * SUBGROUPS;
const KEY_STEPS = KEY / 16u;
const VALUE_TILES = VALUE / 16u;
const KEY_PITCH = KEY / 4u + 2u; // in workgroup memory, so that rows are in different banks
const VALUE_PITCH = VALUE / 4u + 2u;
const KEY_SHARE = (TILE * KEY_CHUNKS + WORKGROUP - 1u) / WORKGROUP; // chunks of a tile that an invocation loads
const VALUE_SHARE = (TILE * VALUE_CHUNKS + WORKGROUP - 1u) / WORKGROUP;
const WEIGHT_PITCH = TILE / 4u + 2u;

var<storage, read> q: array<vec4<f32>>;
var<storage, read> rotated: array<vec4<f32>>; // the rotary parts of the queries
var<storage, read> expanded: array<vec4<u32>>;
var<storage, read_write> y: array<vec4<f32>>;
var<storage, read_write> stats: array<vec2<f32>>; // [row][head]: the score that weights are relative to, and their sum

var<workgroup> keys: array<vec4<f16>, 2u * TILE * KEY_PITCH>;
var<workgroup> values: array<vec4<f16>, 2u * TILE * VALUE_PITCH>;
var<workgroup> scores: array<vec4<f32>, ROWS * TILE / 4u>;     // [row][KV row]
var<workgroup> weights: array<vec4<f16>, ROWS * WEIGHT_PITCH>; // [row][KV row]
var<workgroup> rescales: array<f32, ROWS>; // the factor on a row's earlier weights
var<workgroup> any_rescale: vec4<u32>;     // x: 1 if earlier sums must be rescaled
var<workgroup> bounds: vec4<u32>;          // first KV row, end, first row, whether no segment follows for these rows

// An invocation's share of the keys of a tile, which begins at chunk `at`. A tile may extend past the segment: keys
// there get no weight.
fn load_keys(at: u32, i: u32) -> array<vec4<u32>, KEY_SHARE> {
    var share: array<vec4<u32>, KEY_SHARE>;
    for (var n = 0u; n < KEY_SHARE; n++) {
        let k = i + n * WORKGROUP;
        share[n] = expanded[at + k / KEY_CHUNKS * EXPANDED_CHUNKS + k % KEY_CHUNKS];
    }
    return share;
}

fn put_keys(share: array<vec4<u32>, KEY_SHARE>, buffer: u32, i: u32) {
    for (var n = 0u; n < KEY_SHARE; n++) {
        let k = i + n * WORKGROUP;
        if k < TILE * KEY_CHUNKS {
            let at = (buffer * TILE + k / KEY_CHUNKS) * KEY_PITCH + 2u * (k % KEY_CHUNKS);
            keys[at] = first_of(share[n]);
            keys[at + 1u] = second_of(share[n]);
        }
    }
}

// The same for the values.
fn load_values(at: u32, i: u32) -> array<vec4<u32>, VALUE_SHARE> {
    var share: array<vec4<u32>, VALUE_SHARE>;
    for (var n = 0u; n < VALUE_SHARE; n++) {
        let k = i + n * WORKGROUP;
        share[n] = expanded[at + KEY_CHUNKS + k / VALUE_CHUNKS * EXPANDED_CHUNKS + k % VALUE_CHUNKS];
    }
    return share;
}

fn put_values(share: array<vec4<u32>, VALUE_SHARE>, buffer: u32, i: u32) {
    for (var n = 0u; n < VALUE_SHARE; n++) {
        let k = i + n * WORKGROUP;
        if k < TILE * VALUE_CHUNKS {
            let at = (buffer * TILE + k / VALUE_CHUNKS) * VALUE_PITCH + 2u * (k % VALUE_CHUNKS);
            values[at] = first_of(share[n]);
            values[at + 1u] = second_of(share[n]);
        }
    }
}

// Sixteen columns of the queries of a subgroup's rows: matrix `step`. All invocations store them in the memory for
// keys.
fn query(head: u32, first_row: u32, step: u32, local: u32) -> Left {
    workgroupBarrier();
    for (var k = local; k < ROWS * 4u; k += WORKGROUP) {
        let row = min(first_row + k / 4u, row_count() - 1u);
        let chunk = 4u * step + k % 4u;
        var held: vec4<f32>;
        if step < NOPE / 16u {
            held = q[row * Q_PITCH + head * Q_STRIDE + chunk];
        } else {
            held = rotated[row * ROTATED_PITCH + head * ROTATED_STRIDE + chunk - NOPE / 4u];
        }
        keys[k] = vec4<f16>(held);
    }
    workgroupBarrier();
    let at = local / 32u * 64u;
    let pitch = 4u;
    return coopLoadT<Left>(&keys[at], pitch);
}

// The scores plus what the keys' sixteen columns, beginning at `at`, add to them.
fn with_keys(sums: Sums, queries: Left, at: u32) -> Sums {
    let pitch = KEY_PITCH;
    let columns = coopLoad<Right>(&keys[at], pitch);
    return coopMultiplyAdd(queries, columns, sums);
}

// Sums of sixteen columns plus a tile's weighted values, beginning at `at`.
fn with_values(sums: Sums, weighing: Left, at: u32) -> Sums {
    let pitch = VALUE_PITCH;
    let columns = coopLoadT<Right>(&values[at], pitch);
    return coopMultiplyAdd(weighing, columns, sums);
}

// The sums, with each row's multiplied by its rescale. They go through the memory of the scores, which are no longer
// needed.
fn rescaled(sums: Sums, local: u32) -> Sums {
    let scratch = local / 32u * 64u;
    let pitch = 4u;
    workgroupBarrier();
    coopStoreT(sums, &scores[scratch], pitch);
    workgroupBarrier();
    for (var k = local % 32u; k < 64u; k += 32u) {
        scores[scratch + k] *= rescales[(scratch + k) / 4u];
    }
    workgroupBarrier();
    return coopLoadT<Sums>(&scores[scratch], pitch);
}

// The index of the k-th chunk of the output among those of a subgroup's sixteen rows in sixteen columns.
fn output_at(head: u32, first_row: u32, column: u32, k: u32) -> u32 {
    return (first_row + k / 4u) * Y_PITCH + head * Y_STRIDE + 4u * column + k % 4u;
}

// The sums of earlier segments for sixteen columns of a subgroup's rows, the first of which is `first_row`.
fn left_of(head: u32, first_row: u32, column: u32, local: u32) -> Sums {
    let scratch = local / 32u * 64u;
    let pitch = 4u;
    workgroupBarrier();
    for (var k = local % 32u; k < 64u; k += 32u) {
        if first_row + k / 4u < row_count() {
            scores[scratch + k] = y[output_at(head, first_row, column, k)];
        }
    }
    workgroupBarrier();
    return coopLoadT<Sums>(&scores[scratch], pitch);
}

// Writes them, with each row's multiplied by its rescale.
fn leave(sums: Sums, head: u32, first_row: u32, column: u32, local: u32) {
    let scratch = local / 32u * 64u;
    let pitch = 4u;
    workgroupBarrier();
    coopStoreT(sums, &scores[scratch], pitch);
    workgroupBarrier();
    for (var k = local % 32u; k < 64u; k += 32u) {
        if first_row + k / 4u < row_count() {
            y[output_at(head, first_row, column, k)] = scores[scratch + k] * rescales[(scratch + k) / 4u];
        }
    }
}

// Turns eight scores of invocation `i`'s row into weights.
fn weigh(row: ptr<function, Softmax>, tile: u32, i: u32) {
    let first = tile + 8u * (i % 2u);
    let places = vec4<u32>(first, first + 1u, first + 2u, first + 3u);
    let seen0 = places < vec4<u32>((*row).seen);
    let seen1 = places + 4u < vec4<u32>((*row).seen);
    let scores0 = select(vec4<f32>(LOWEST), scores[2u * i] * SCALE, seen0);
    let scores1 = select(vec4<f32>(LOWEST), scores[2u * i + 1u] * SCALE, seen1);
    let highest = max(scores0, scores1);
    let top = row_max(max(max(highest.x, highest.y), max(highest.z, highest.w)));
    let before = (*row).reference;
    let reference = reference_after(before, top);
    let weights0 = select(vec4<f32>(0.0), WEIGHT_UNIT * exp(scores0 - reference), seen0);
    let weights1 = select(vec4<f32>(0.0), WEIGHT_UNIT * exp(scores1 - reference), seen1);
    let to = i / 2u * WEIGHT_PITCH + i % 2u * 2u;
    weights[to] = vec4<f16>(weights0);
    weights[to + 1u] = vec4<f16>(weights1);
    let rescale = rescale_to(reference, before);
    (*row).reference = reference;
    (*row).total = (*row).total * rescale + dot(weights0 + weights1, vec4<f32>(1.0));
    if i % 2u == 0u {
        rescales[i / 2u] = rescale;
        if has_to_rescale(reference, before) {
            any_rescale.x = 1u;
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
    let workgroup = in_grid(id); // x: blocks of rows; y: heads; z: segments
    if local == 0u {
        let blocks = (row_count() + ROWS - 1u) / ROWS;
        let first = (blocks - 1u - min(workgroup.x, blocks - 1u)) * ROWS; // those that attend to most come first
        let seen = attended_by(min(first + ROWS, row_count()) - 1u);
        let start = workgroup.z * SEGMENT;
        let end = min(start + SEGMENT, seen);
        bounds = vec4<u32>(start, select(0u, end, workgroup.x < blocks), first, select(0u, 1u, end == seen));
    }
    let uniform_bounds = workgroupUniformLoad(&bounds);
    let start = uniform_bounds.x;
    let end = uniform_bounds.y;
    if start >= end {
        return;
    }
    let head = workgroup.y;
    let i = 32u * subgroup + lane;
    let first_row = uniform_bounds.z + 16u * subgroup; // of the subgroup
    let token = min(uniform_bounds.z + i / 2u, row_count() - 1u);
    let stats_at = token * HEADS + head;
    var row = Softmax(min(end, attended_by(token)), LOWEST, 0.0);

    // Separate variables, because drivers keep arrays of matrices in slow memory.
    var s0 = Sums(); var s1 = Sums(); var s2 = Sums(); var s3 = Sums();
    var s4 = Sums(); var s5 = Sums(); var s6 = Sums(); var s7 = Sums();
    var s8 = Sums(); var s9 = Sums(); var s10 = Sums(); var s11 = Sums();
    var s12 = Sums(); var s13 = Sums(); var s14 = Sums(); var s15 = Sums();
    if start > 0u {
        let left = stats[stats_at];
        row.reference = left.x;
        row.total = select(0.0, left.y, i % 2u == 0u);
        s0 = left_of(head, first_row, 0u, i);
        if VALUE_TILES > 1u { s1 = left_of(head, first_row, 1u, i); }
        if VALUE_TILES > 2u { s2 = left_of(head, first_row, 2u, i); }
        if VALUE_TILES > 3u { s3 = left_of(head, first_row, 3u, i); }
        if VALUE_TILES > 4u { s4 = left_of(head, first_row, 4u, i); }
        if VALUE_TILES > 5u { s5 = left_of(head, first_row, 5u, i); }
        if VALUE_TILES > 6u { s6 = left_of(head, first_row, 6u, i); }
        if VALUE_TILES > 7u { s7 = left_of(head, first_row, 7u, i); }
        if VALUE_TILES > 8u { s8 = left_of(head, first_row, 8u, i); }
        if VALUE_TILES > 9u { s9 = left_of(head, first_row, 9u, i); }
        if VALUE_TILES > 10u { s10 = left_of(head, first_row, 10u, i); }
        if VALUE_TILES > 11u { s11 = left_of(head, first_row, 11u, i); }
        if VALUE_TILES > 12u { s12 = left_of(head, first_row, 12u, i); }
        if VALUE_TILES > 13u { s13 = left_of(head, first_row, 13u, i); }
        if VALUE_TILES > 14u { s14 = left_of(head, first_row, 14u, i); }
        if VALUE_TILES > 15u { s15 = left_of(head, first_row, 15u, i); }
    }
    var a0: Left; var a1: Left; var a2: Left; var a3: Left; var a4: Left; var a5: Left; var a6: Left; var a7: Left;
    var a8: Left; var a9: Left; var a10: Left; var a11: Left;
    var a12: Left; var a13: Left; var a14: Left; var a15: Left;
    a0 = query(head, uniform_bounds.z, 0u, i);
    if KEY_STEPS > 1u { a1 = query(head, uniform_bounds.z, 1u, i); }
    if KEY_STEPS > 2u { a2 = query(head, uniform_bounds.z, 2u, i); }
    if KEY_STEPS > 3u { a3 = query(head, uniform_bounds.z, 3u, i); }
    if KEY_STEPS > 4u { a4 = query(head, uniform_bounds.z, 4u, i); }
    if KEY_STEPS > 5u { a5 = query(head, uniform_bounds.z, 5u, i); }
    if KEY_STEPS > 6u { a6 = query(head, uniform_bounds.z, 6u, i); }
    if KEY_STEPS > 7u { a7 = query(head, uniform_bounds.z, 7u, i); }
    if KEY_STEPS > 8u { a8 = query(head, uniform_bounds.z, 8u, i); }
    if KEY_STEPS > 9u { a9 = query(head, uniform_bounds.z, 9u, i); }
    if KEY_STEPS > 10u { a10 = query(head, uniform_bounds.z, 10u, i); }
    if KEY_STEPS > 11u { a11 = query(head, uniform_bounds.z, 11u, i); }
    if KEY_STEPS > 12u { a12 = query(head, uniform_bounds.z, 12u, i); }
    if KEY_STEPS > 13u { a13 = query(head, uniform_bounds.z, 13u, i); }
    if KEY_STEPS > 14u { a14 = query(head, uniform_bounds.z, 14u, i); }
    if KEY_STEPS > 15u { a15 = query(head, uniform_bounds.z, 15u, i); }
    workgroupBarrier();
    var at_tile = expanded_at(head, 0u);
    put_keys(load_keys(at_tile, i), 0u, i);
    put_values(load_values(at_tile, i), 0u, i);
    workgroupBarrier();

    var buffer = 0u;
    for (var tile = start; tile < end; tile += TILE) {
        at_tile += TILE * EXPANDED_CHUNKS;
        let next_keys = load_keys(at_tile, i);
        let at_keys = buffer * TILE * KEY_PITCH;
        var some = Sums();
        var others = Sums(); // two sums, because a product waits for the previous one to the same sum
        some = with_keys(some, a0, at_keys);
        if KEY_STEPS > 1u { others = with_keys(others, a1, at_keys + 4u); }
        if KEY_STEPS > 2u { some = with_keys(some, a2, at_keys + 8u); }
        if KEY_STEPS > 3u { others = with_keys(others, a3, at_keys + 12u); }
        if KEY_STEPS > 4u { some = with_keys(some, a4, at_keys + 16u); }
        if KEY_STEPS > 5u { others = with_keys(others, a5, at_keys + 20u); }
        if KEY_STEPS > 6u { some = with_keys(some, a6, at_keys + 24u); }
        if KEY_STEPS > 7u { others = with_keys(others, a7, at_keys + 28u); }
        if KEY_STEPS > 8u { some = with_keys(some, a8, at_keys + 32u); }
        if KEY_STEPS > 9u { others = with_keys(others, a9, at_keys + 36u); }
        if KEY_STEPS > 10u { some = with_keys(some, a10, at_keys + 40u); }
        if KEY_STEPS > 11u { others = with_keys(others, a11, at_keys + 44u); }
        if KEY_STEPS > 12u { some = with_keys(some, a12, at_keys + 48u); }
        if KEY_STEPS > 13u { others = with_keys(others, a13, at_keys + 52u); }
        if KEY_STEPS > 14u { some = with_keys(some, a14, at_keys + 56u); }
        if KEY_STEPS > 15u { others = with_keys(others, a15, at_keys + 60u); }
        let scratch = 64u * subgroup;
        let pitch = 4u;
        let both = some + others;
        coopStoreT(both, &scores[scratch], pitch);
        if i == 0u {
            any_rescale.x = 0u;
        }
        put_keys(next_keys, 1u - buffer, i);
        let next_values = load_values(at_tile, i);
        workgroupBarrier();
        weigh(&row, tile, i);
        workgroupBarrier();
        if any_rescale.x == 1u {
            s0 = rescaled(s0, i);
            if VALUE_TILES > 1u { s1 = rescaled(s1, i); }
            if VALUE_TILES > 2u { s2 = rescaled(s2, i); }
            if VALUE_TILES > 3u { s3 = rescaled(s3, i); }
            if VALUE_TILES > 4u { s4 = rescaled(s4, i); }
            if VALUE_TILES > 5u { s5 = rescaled(s5, i); }
            if VALUE_TILES > 6u { s6 = rescaled(s6, i); }
            if VALUE_TILES > 7u { s7 = rescaled(s7, i); }
            if VALUE_TILES > 8u { s8 = rescaled(s8, i); }
            if VALUE_TILES > 9u { s9 = rescaled(s9, i); }
            if VALUE_TILES > 10u { s10 = rescaled(s10, i); }
            if VALUE_TILES > 11u { s11 = rescaled(s11, i); }
            if VALUE_TILES > 12u { s12 = rescaled(s12, i); }
            if VALUE_TILES > 13u { s13 = rescaled(s13, i); }
            if VALUE_TILES > 14u { s14 = rescaled(s14, i); }
            if VALUE_TILES > 15u { s15 = rescaled(s15, i); }
        }
        let from_weights = 16u * subgroup * WEIGHT_PITCH;
        let weight_pitch = WEIGHT_PITCH;
        let w = coopLoadT<Left>(&weights[from_weights], weight_pitch);
        let at = buffer * TILE * VALUE_PITCH;
        s0 = with_values(s0, w, at);
        if VALUE_TILES > 1u { s1 = with_values(s1, w, at + 4u); }
        if VALUE_TILES > 2u { s2 = with_values(s2, w, at + 8u); }
        if VALUE_TILES > 3u { s3 = with_values(s3, w, at + 12u); }
        if VALUE_TILES > 4u { s4 = with_values(s4, w, at + 16u); }
        if VALUE_TILES > 5u { s5 = with_values(s5, w, at + 20u); }
        if VALUE_TILES > 6u { s6 = with_values(s6, w, at + 24u); }
        if VALUE_TILES > 7u { s7 = with_values(s7, w, at + 28u); }
        if VALUE_TILES > 8u { s8 = with_values(s8, w, at + 32u); }
        if VALUE_TILES > 9u { s9 = with_values(s9, w, at + 36u); }
        if VALUE_TILES > 10u { s10 = with_values(s10, w, at + 40u); }
        if VALUE_TILES > 11u { s11 = with_values(s11, w, at + 44u); }
        if VALUE_TILES > 12u { s12 = with_values(s12, w, at + 48u); }
        if VALUE_TILES > 13u { s13 = with_values(s13, w, at + 52u); }
        if VALUE_TILES > 14u { s14 = with_values(s14, w, at + 56u); }
        if VALUE_TILES > 15u { s15 = with_values(s15, w, at + 60u); }
        put_values(next_values, 1u - buffer, i);
        buffer = 1u - buffer;
        workgroupBarrier();
    }

    let total = row_sum(row.total);
    if i % 2u == 0u {
        rescales[i / 2u] = select(1.0, 1.0 / total, uniform_bounds.w == 1u);
        if uniform_bounds.z + i / 2u < row_count() {
            stats[stats_at] = vec2<f32>(row.reference, total);
        }
    }
    leave(s0, head, first_row, 0u, i);
    if VALUE_TILES > 1u { leave(s1, head, first_row, 1u, i); }
    if VALUE_TILES > 2u { leave(s2, head, first_row, 2u, i); }
    if VALUE_TILES > 3u { leave(s3, head, first_row, 3u, i); }
    if VALUE_TILES > 4u { leave(s4, head, first_row, 4u, i); }
    if VALUE_TILES > 5u { leave(s5, head, first_row, 5u, i); }
    if VALUE_TILES > 6u { leave(s6, head, first_row, 6u, i); }
    if VALUE_TILES > 7u { leave(s7, head, first_row, 7u, i); }
    if VALUE_TILES > 8u { leave(s8, head, first_row, 8u, i); }
    if VALUE_TILES > 9u { leave(s9, head, first_row, 9u, i); }
    if VALUE_TILES > 10u { leave(s10, head, first_row, 10u, i); }
    if VALUE_TILES > 11u { leave(s11, head, first_row, 11u, i); }
    if VALUE_TILES > 12u { leave(s12, head, first_row, 12u, i); }
    if VALUE_TILES > 13u { leave(s13, head, first_row, 13u, i); }
    if VALUE_TILES > 14u { leave(s14, head, first_row, 14u, i); }
    if VALUE_TILES > 15u { leave(s15, head, first_row, 15u, i); }
}
