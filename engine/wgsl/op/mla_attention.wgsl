// Attention over the latent KV cache, which all heads share, for one row of the batch: a KV row has KV_ROW chunks of
// four values, all of which are the key, and the first LATENT of which are the value. A workgroup computes HEADS heads
// over one split of the cache, in tiles of SPAN KV rows, with online softmax. For each head it writes the output before
// division by the sum of weights, the largest score, and that sum; lib/merge.wgsl merges the splits.

const TEAMS = WORKGROUP / LANES;
const VALUES = 16u; // KV rows whose values an invocation loads before it uses the first

var<storage, read> q: array<vec4<f32>>;
var<storage, read> cache: array<CacheElement>;
var<storage, read_write> parts: array<vec4<f32>>; // [row][head][split][chunk]
var<storage, read_write> stats: array<vec2<f32>>; // [row][head][split]: largest score, sum of weights

var<workgroup> queries: array<vec4<f32>, HEADS * KV_ROW>;
var<workgroup> scores: array<f32, SPAN * HEADS>; // [KV row][head]; weigh_tile turns them into weights
// These are bits of f32, which one lane writes for all.
var<workgroup> tops: array<atomic<u32>, HEADS>;    // the largest scores so far
var<workgroup> totals: array<atomic<u32>, HEADS>;  // the sums of weights so far
var<workgroup> rescales: array<atomic<u32>, HEADS>; // the factors on earlier weights

// The scores of two KV rows, one component for each head: HEADS is at most 4. Nothing here is indexed by a loop,
// because compilers that do not unroll it keep arrays in memory.
struct Scores {
    ones: vec4<f32>,
    twos: vec4<f32>,
}

// The sums plus the products of chunk k of both keys.
fn with_keys(sums: Scores, one: CacheChunk, two: CacheChunk, k: u32) -> Scores {
    let key_one = cache_unpacked(one, k);
    let key_two = cache_unpacked(two, k);
    if k >= KV_ROW {
        return sums;
    }
    var out = sums;
    let query = queries[k];
    out.ones.x += dot(key_one, query);
    out.twos.x += dot(key_two, query);
    if HEADS > 1u {
        let second = queries[KV_ROW + k];
        out.ones.y += dot(key_one, second);
        out.twos.y += dot(key_two, second);
    }
    if HEADS > 2u {
        let third = queries[2u * KV_ROW + k];
        out.ones.z += dot(key_one, third);
        out.twos.z += dot(key_two, third);
    }
    if HEADS > 3u {
        let fourth = queries[3u * KV_ROW + k];
        out.ones.w += dot(key_one, fourth);
        out.twos.w += dot(key_two, fourth);
    }
    return out;
}

// Writes the scores of KV rows t and t + 1 of a tile for a head. All lanes write the same value, so that no lane reuses
// the value that it read there before.
fn leave_scores(t: u32, last: u32, head: u32, one: f32, two: f32, team: Team) {
    let score_one = team_sum(one, team);
    let score_two = team_sum(two, team);
    scores[t * HEADS + head] = select(LOWEST, SCALE * score_one, t <= last);
    scores[(t + 1u) * HEADS + head] = select(LOWEST, SCALE * score_two, t < last);
}

// Computes the scores of a tile's KV rows, which begin at `place` in the pool, for every head. `last` is the last valid
// one. A team takes two KV rows at a time, so that it reads the queries once for both, and loads six chunks of each
// before it uses the first.
fn score_tile(place: u32, last: u32, team: Team) {
    for (var t = 2u * team.index; t < SPAN; t += 2u * TEAMS) {
        let one = place + min(t, last); // a tile may extend past the split
        let two = place + min(t + 1u, last);
        var sums = Scores(vec4<f32>(0.0), vec4<f32>(0.0));
        for (var k = team.lane; k < KV_ROW; k += 6u * LANES) {
            let k1 = min(k + LANES, KV_ROW - 1u);
            let k2 = min(k + 2u * LANES, KV_ROW - 1u);
            let k3 = min(k + 3u * LANES, KV_ROW - 1u);
            let k4 = min(k + 4u * LANES, KV_ROW - 1u);
            let k5 = min(k + 5u * LANES, KV_ROW - 1u);
            let one0 = cache_chunk(one, k); let two0 = cache_chunk(two, k);
            let one1 = cache_chunk(one, k1); let two1 = cache_chunk(two, k1);
            let one2 = cache_chunk(one, k2); let two2 = cache_chunk(two, k2);
            let one3 = cache_chunk(one, k3); let two3 = cache_chunk(two, k3);
            let one4 = cache_chunk(one, k4); let two4 = cache_chunk(two, k4);
            let one5 = cache_chunk(one, k5); let two5 = cache_chunk(two, k5);
            sums = with_keys(sums, one0, two0, k);
            sums = with_keys(sums, one1, two1, k + LANES);
            sums = with_keys(sums, one2, two2, k + 2u * LANES);
            sums = with_keys(sums, one3, two3, k + 3u * LANES);
            sums = with_keys(sums, one4, two4, k + 4u * LANES);
            sums = with_keys(sums, one5, two5, k + 5u * LANES);
        }
        leave_scores(t, last, 0u, sums.ones.x, sums.twos.x, team);
        if HEADS > 1u { leave_scores(t, last, 1u, sums.ones.y, sums.twos.y, team); }
        if HEADS > 2u { leave_scores(t, last, 2u, sums.ones.z, sums.twos.z, team); }
        if HEADS > 3u { leave_scores(t, last, 3u, sums.ones.w, sums.twos.w, team); }
    }
}

// Turns the tile's scores into weights, one head for each team.
fn weigh_tile(team: Team) {
    for (var first = 0u; first < HEADS; first += TEAMS) {
        let h = min(first + team.index, HEADS - 1u);
        let before = bitcast<f32>(atomicLoad(&tops[h]));
        var largest = before;
        for (var t = team.lane; t < SPAN; t += LANES) {
            largest = max(largest, scores[t * HEADS + h]);
        }
        let top = team_max(largest, team);
        var sum = 0.0;
        for (var t = team.lane; t < SPAN && first + team.index < HEADS; t += LANES) {
            let weight = exp(scores[t * HEADS + h] - top);
            scores[t * HEADS + h] = weight;
            sum += weight;
        }
        let total = team_sum(sum, team);
        if team.lane == 0u && first + team.index < HEADS {
            let rescale = exp(before - top);
            atomicStore(&tops[h], bitcast<u32>(top));
            atomicStore(&rescales[h], bitcast<u32>(rescale));
            atomicStore(&totals[h], bitcast<u32>(bitcast<f32>(atomicLoad(&totals[h])) * rescale + total));
        }
    }
}

// A chunk of each head's output.
struct Outputs {
    first: vec4<f32>,
    second: vec4<f32>,
    third: vec4<f32>,
    fourth: vec4<f32>,
}

// The sums plus chunk `at` of the weighted value of KV row t of the tile.
fn with_value(sums: Outputs, chunk: CacheChunk, at: u32, t: u32) -> Outputs {
    let value = cache_unpacked(chunk, at);
    var out = sums;
    out.first += scores[t * HEADS] * value;
    if HEADS > 1u { out.second += scores[t * HEADS + 1u] * value; }
    if HEADS > 2u { out.third += scores[t * HEADS + 2u] * value; }
    if HEADS > 3u { out.fourth += scores[t * HEADS + 3u] * value; }
    return out;
}

// The sums plus the values of VALUES KV rows, beginning at t, which are all loaded before the first is used. KV rows
// past the end have a weight of zero.
fn with_values(sums: Outputs, place: u32, at: u32, t: u32, last: u32) -> Outputs {
    let v0 = cache_chunk(place + min(t, last), at);
    let v1 = cache_chunk(place + min(t + 1u, last), at);
    let v2 = cache_chunk(place + min(t + 2u, last), at);
    let v3 = cache_chunk(place + min(t + 3u, last), at);
    let v4 = cache_chunk(place + min(t + 4u, last), at);
    let v5 = cache_chunk(place + min(t + 5u, last), at);
    let v6 = cache_chunk(place + min(t + 6u, last), at);
    let v7 = cache_chunk(place + min(t + 7u, last), at);
    let v8 = cache_chunk(place + min(t + 8u, last), at);
    let v9 = cache_chunk(place + min(t + 9u, last), at);
    let v10 = cache_chunk(place + min(t + 10u, last), at);
    let v11 = cache_chunk(place + min(t + 11u, last), at);
    let v12 = cache_chunk(place + min(t + 12u, last), at);
    let v13 = cache_chunk(place + min(t + 13u, last), at);
    let v14 = cache_chunk(place + min(t + 14u, last), at);
    let v15 = cache_chunk(place + min(t + 15u, last), at);
    var out = with_value(sums, v0, at, t);
    out = with_value(out, v1, at, t + 1u);
    out = with_value(out, v2, at, t + 2u);
    out = with_value(out, v3, at, t + 3u);
    out = with_value(out, v4, at, t + 4u);
    out = with_value(out, v5, at, t + 5u);
    out = with_value(out, v6, at, t + 6u);
    out = with_value(out, v7, at, t + 7u);
    out = with_value(out, v8, at, t + 8u);
    out = with_value(out, v9, at, t + 9u);
    out = with_value(out, v10, at, t + 10u);
    out = with_value(out, v11, at, t + 11u);
    out = with_value(out, v12, at, t + 12u);
    out = with_value(out, v13, at, t + 13u);
    out = with_value(out, v14, at, t + 14u);
    return with_value(out, v15, at, t + 15u);
}

fn rescale_of(head: u32) -> f32 {
    return bitcast<f32>(atomicLoad(&rescales[head]));
}

fn rescaled(sums: Outputs) -> Outputs {
    var out = sums;
    out.first *= rescale_of(0u);
    if HEADS > 1u { out.second *= rescale_of(1u); }
    if HEADS > 2u { out.third *= rescale_of(2u); }
    if HEADS > 3u { out.fourth *= rescale_of(3u); }
    return out;
}

// Writes chunk `at` of the output of the workgroup's head number `head` to index `slot`.
fn leave_chunk(slot: u32, head: u32, at: u32, sum: vec4<f32>) {
    if at == 0u {
        stats[slot] = bitcast<vec2<f32>>(vec2<u32>(atomicLoad(&tops[head]), atomicLoad(&totals[head])));
    }
    if at < LATENT {
        parts[slot * LATENT + at] = sum;
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let team = team_of(i);
    let workgroup = in_grid(i.workgroup);
    let first_head = workgroup.x * HEADS;
    let row = workgroup.z;
    let split = split_for(row, workgroup.y);
    if split.start >= split.end {
        return;
    }
    let first_page = first_page_of(row);
    for (var k = i.local; k < HEADS * KV_ROW; k += WORKGROUP) {
        queries[k] = q[row * ALL_HEADS * KV_ROW + min(first_head * KV_ROW + k, ALL_HEADS * KV_ROW - 1u)];
    }
    for (var h = i.local; h < HEADS; h += WORKGROUP) {
        atomicStore(&tops[h], bitcast<u32>(LOWEST));
        atomicStore(&totals[h], 0u);
    }
    workgroupBarrier();
    var sums: array<Outputs, CHUNKS>; // this invocation's chunks of the output: one, except for very wide latents
    for (var tile = split.start; tile < split.end; tile += SPAN) {
        let place = kv_place(first_page, tile);
        let last = split.end - 1u - tile;
        score_tile(place, last, team);
        workgroupBarrier();
        weigh_tile(team);
        workgroupBarrier();
        for (var c = 0u; c < CHUNKS; c++) {
            sums[c] = rescaled(sums[c]);
        }
        for (var first = 0u; first < SPAN && first <= last; first += VALUES) {
            for (var c = 0u; c < CHUNKS; c++) {
                let at = min(i.local + c * WORKGROUP, LATENT - 1u);
                sums[c] = with_values(sums[c], place, at, first, last);
            }
        }
        workgroupBarrier(); // the weights are read before the next tile overwrites them
    }
    let slot = (row * ALL_HEADS + first_head) * split_count() + workgroup.y;
    for (var c = 0u; c < CHUNKS; c++) {
        let at = i.local + c * WORKGROUP;
        let left = ALL_HEADS - first_head;
        leave_chunk(slot, 0u, at, sums[c].first);
        if HEADS > 1u && left > 1u { leave_chunk(slot + split_count(), 1u, at, sums[c].second); }
        if HEADS > 2u && left > 2u { leave_chunk(slot + 2u * split_count(), 2u, at, sums[c].third); }
        if HEADS > 3u && left > 3u { leave_chunk(slot + 3u * split_count(), 3u, at, sums[c].fourth); }
    }
}
