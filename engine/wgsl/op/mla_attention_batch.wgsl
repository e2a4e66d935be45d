// Attention over a part of the KV rows for many rows of a batch: over the latents, or over a segment of expanded keys
// and values. lib/over_*.wgsl defines the parts, and what a row is here. A workgroup computes ROWS of them, which are
// of one sequence and share a tile of SPAN KV rows at a time. Each attends to the KV rows up to its own token's, with
// online softmax.

const STEP = 8u;      // chunks of a key that are in workgroup memory at once
const PITCH = STEP + 1u;
const TOKEN_LANES = 16u; // invocations that share a tile's KV rows to compute scores
const ROW_LANES = WORKGROUP / TOKEN_LANES;
const SCORE_ROWS = (ROWS + ROW_LANES - 1u) / ROW_LANES;
const SCORE_TOKENS = SPAN / TOKEN_LANES;
const WEIGH_LANES = WORKGROUP / ROWS;          // invocations that share a row's weights
const ROW_GROUPS = WORKGROUP / COLUMN_LANES;   // groups of invocations that share the rows of values
const OWN_ROWS = ROWS / ROW_GROUPS;
const OWN_CHUNKS = (VALUE_FOURS + COLUMN_LANES - 1u) / COLUMN_LANES;
const SUMS = OWN_ROWS * OWN_CHUNKS; // chunks of the output of an invocation: chunk n % OWN_CHUNKS of row n / OWN_CHUNKS
const_assert SUMS <= 16u;

var<storage, read> cache: array<CacheElement>;

var<workgroup> queries: array<vec4<f32>, ROWS * PITCH>;
var<workgroup> keys: array<vec4<f32>, SPAN * PITCH>;
var<workgroup> scores: array<f32, ROWS * SPAN>; // [row][KV row]; weigh_tile turns them into weights
var<workgroup> lane_tops: array<f32, WORKGROUP>;
var<workgroup> lane_sums: array<f32, WORKGROUP>;
var<workgroup> tops: array<f32, ROWS>;    // in the end, the largest scores
var<workgroup> totals: array<f32, ROWS>;  // in the end, the sums of weights
var<workgroup> rescales: array<f32, ROWS>; // the factors on earlier weights

// Stages a step of the rows' queries and of the tile's keys in workgroup memory.
fn stage(first_row: u32, part: u32, place: u32, last: u32, step: u32, local: u32) {
    for (var k = local; k < ROWS * STEP; k += WORKGROUP) {
        let row = min(first_row + k / STEP, live_rows() - 1u);
        let chunk = step + k % STEP;
        let held = query_chunk(row, part, min(chunk, KEY_FOURS - 1u));
        queries[k / STEP * PITCH + k % STEP] = select(vec4<f32>(0.0), held, chunk < KEY_FOURS);
    }
    for (var k = local; k < SPAN * STEP; k += WORKGROUP) {
        let chunk = min(step + k % STEP, KEY_FOURS - 1u); // past the last the query is zero
        let held = cache_chunk(place + min(k / STEP, last), chunk);
        keys[k / STEP * PITCH + k % STEP] = cache_unpacked(held, chunk);
    }
}

fn score_tile(first_row: u32, part: u32, tile: u32, place: u32, end: u32, local: u32) {
    let a = local / TOKEN_LANES;
    let b = local % TOKEN_LANES;
    var sums: array<f32, SCORE_ROWS * SCORE_TOKENS>;
    for (var step = 0u; step < KEY_FOURS; step += STEP) {
        workgroupBarrier(); // the previous step, or the weights, were read
        stage(first_row, part, place, end - 1u - tile, step, local);
        workgroupBarrier();
        for (var k = 0u; k < STEP; k++) {
            var some: array<vec4<f32>, SCORE_TOKENS>;
            for (var t = 0u; t < SCORE_TOKENS; t++) {
                some[t] = keys[(b + t * TOKEN_LANES) * PITCH + k];
            }
            for (var r = 0u; r < SCORE_ROWS; r++) {
                let query = queries[min(a + r * ROW_LANES, ROWS - 1u) * PITCH + k];
                for (var t = 0u; t < SCORE_TOKENS; t++) {
                    sums[r * SCORE_TOKENS + t] += dot(query, some[t]);
                }
            }
        }
    }
    for (var r = 0u; r < SCORE_ROWS; r++) {
        let row = a + r * ROW_LANES;
        let seen = min(end, seen_by(first_row + row));
        for (var t = 0u; t < SCORE_TOKENS && row < ROWS; t++) {
            let at = b + t * TOKEN_LANES;
            scores[row * SPAN + at] = select(LOWEST, SCALE * sums[r * SCORE_TOKENS + t], tile + at < seen);
        }
    }
}

// The state of a row in each of the invocations that compute its weights.
struct Weighed {
    top: f32,   // the largest score so far
    total: f32, // the sum of weights so far
}

// Turns the tile's scores into weights.
fn weigh_tile(so_far: Weighed, local: u32) -> Weighed {
    let row = local / WEIGH_LANES;
    let lane = local % WEIGH_LANES;
    let before = so_far.top;
    var largest = before;
    for (var t = lane; t < SPAN; t += WEIGH_LANES) {
        largest = max(largest, scores[row * SPAN + t]);
    }
    lane_tops[local] = largest;
    workgroupBarrier();
    for (var n = 0u; n < WEIGH_LANES; n++) {
        largest = max(largest, lane_tops[row * WEIGH_LANES + n]);
    }
    var sum = 0.0;
    for (var t = lane; t < SPAN; t += WEIGH_LANES) {
        let score = scores[row * SPAN + t];
        let weight = select(exp(score - largest), 0.0, score == LOWEST); // a row may attend to nothing in a split
        scores[row * SPAN + t] = weight;
        sum += weight;
    }
    lane_sums[local] = sum;
    let rescale = exp(before - largest);
    rescales[row] = rescale; // all of the row's invocations write the same
    workgroupBarrier();
    var total = so_far.total * rescale;
    for (var n = 0u; n < WEIGH_LANES; n++) {
        total += lane_sums[row * WEIGH_LANES + n];
    }
    return Weighed(largest, total);
}

// Which sums an invocation computes.
struct Own {
    first_row: u32, // of the workgroup
    live: u32,      // one past the last row of all
    part: u32,
    row: u32,       // first of its rows in the workgroup
    column: u32,    // first of its chunks
}

// Four of an invocation's sums. They are only indexed by constants: compilers that do not unroll loops, possibly
// Metal's, would keep them in memory.
alias Four = array<vec4<f32>, 4>;

fn left_sum(n: u32, own: Own) -> vec4<f32> {
    let row = min(own.first_row + own.row + n / OWN_CHUNKS, own.live - 1u);
    return left_chunk(row, own.part, min(own.column + n % OWN_CHUNKS * COLUMN_LANES, VALUE_FOURS - 1u));
}

// Sums n to n + 3 from earlier steps.
fn left_four(n: u32, own: Own) -> Four {
    var left: Four;
    left[0] = left_sum(n, own);
    if n + 1u < SUMS { left[1] = left_sum(n + 1u, own); }
    if n + 2u < SUMS { left[2] = left_sum(n + 2u, own); }
    if n + 3u < SUMS { left[3] = left_sum(n + 3u, own); }
    return left;
}

fn rescaled(n: u32, sums: Four, own: Own) -> Four {
    var out = sums;
    out[0] *= rescales[own.row + n / OWN_CHUNKS];
    if n + 1u < SUMS { out[1] *= rescales[own.row + (n + 1u) / OWN_CHUNKS]; }
    if n + 2u < SUMS { out[2] *= rescales[own.row + (n + 2u) / OWN_CHUNKS]; }
    if n + 3u < SUMS { out[3] *= rescales[own.row + (n + 3u) / OWN_CHUNKS]; }
    return out;
}

// What KV row t of a tile, which is at `place`, adds to sum n.
fn weighed_value(n: u32, own: Own, t: u32, place: u32) -> vec4<f32> {
    let chunk = VALUE_FROM + min(own.column + n % OWN_CHUNKS * COLUMN_LANES, VALUE_FOURS - 1u);
    let value = cache_unpacked(cache_chunk(place, chunk), chunk);
    return scores[(own.row + n / OWN_CHUNKS) * SPAN + t] * value;
}

fn with_values(n: u32, sums: Four, own: Own, t: u32, place: u32) -> Four {
    var out = sums;
    out[0] += weighed_value(n, own, t, place);
    if n + 1u < SUMS { out[1] += weighed_value(n + 1u, own, t, place); }
    if n + 2u < SUMS { out[2] += weighed_value(n + 2u, own, t, place); }
    if n + 3u < SUMS { out[3] += weighed_value(n + 3u, own, t, place); }
    return out;
}

fn leave_sum(n: u32, sum: vec4<f32>, own: Own) {
    let row = own.first_row + own.row + n / OWN_CHUNKS;
    let chunk = own.column + n % OWN_CHUNKS * COLUMN_LANES;
    let total = totals[own.row + n / OWN_CHUNKS];
    if n < SUMS && row < own.live && chunk < VALUE_FOURS {
        leave_chunk(row, own.part, chunk, sum, total);
        if chunk == 0u {
            leave_stats(row, own.part, tops[own.row + n / OWN_CHUNKS], total);
        }
    }
}

fn leave_four(n: u32, sums: Four, own: Own) {
    leave_sum(n, sums[0], own);
    leave_sum(n + 1u, sums[1], own);
    leave_sum(n + 2u, sums[2], own);
    leave_sum(n + 3u, sums[3], own);
}

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let workgroup = in_grid(id); // x: blocks of rows; y and z: parts
    let live = live_rows();
    let blocks = (live + ROWS - 1u) / ROWS;
    if workgroup.x >= blocks {
        return;
    }
    let first_row = (blocks - 1u - workgroup.x) * ROWS; // those that attend to most come first
    let split = part_of(workgroup, first_row);
    let end = min(split.end, seen_by(min(first_row + ROWS, live) - 1u));
    if split.start >= end {
        return;
    }
    let part = workgroup.y;
    let tiles = tiles_of(part, first_row);
    let own = Own(first_row, live, part, local / COLUMN_LANES * OWN_ROWS, local % COLUMN_LANES);
    var sums0: Four; var sums1: Four; var sums2: Four; var sums3: Four;
    var weighed = Weighed(LOWEST, 0.0);
    if RESUMES && split.start > 0u {
        let left = left_stats(min(first_row + local / WEIGH_LANES, live - 1u), part);
        weighed = Weighed(left.x, left.y);
        sums0 = left_four(0u, own);
        if SUMS > 4u { sums1 = left_four(4u, own); }
        if SUMS > 8u { sums2 = left_four(8u, own); }
        if SUMS > 12u { sums3 = left_four(12u, own); }
    }
    for (var tile = split.start; tile < end; tile += SPAN) {
        let place = tile_place(tiles, tile, end);
        score_tile(first_row, part, tile, place, end, local);
        workgroupBarrier();
        weighed = weigh_tile(weighed, local);
        sums0 = rescaled(0u, sums0, own);
        if SUMS > 4u { sums1 = rescaled(4u, sums1, own); }
        if SUMS > 8u { sums2 = rescaled(8u, sums2, own); }
        if SUMS > 12u { sums3 = rescaled(12u, sums3, own); }
        let count = min(SPAN, end - tile);
        for (var t = 0u; t < count; t++) {
            sums0 = with_values(0u, sums0, own, t, place + t);
            if SUMS > 4u { sums1 = with_values(4u, sums1, own, t, place + t); }
            if SUMS > 8u { sums2 = with_values(8u, sums2, own, t, place + t); }
            if SUMS > 12u { sums3 = with_values(12u, sums3, own, t, place + t); }
        }
    }
    tops[local / WEIGH_LANES] = weighed.top;
    totals[local / WEIGH_LANES] = weighed.total;
    workgroupBarrier();
    leave_four(0u, sums0, own);
    if SUMS > 4u { leave_four(4u, sums1, own); }
    if SUMS > 8u { leave_four(8u, sums2, own); }
    if SUMS > 12u { leave_four(12u, sums3, own); }
}
