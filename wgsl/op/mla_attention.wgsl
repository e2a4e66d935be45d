// Attention over the latent KV cache, which all heads share, for one row of the batch: of a KV row of KV_ROW chunks of
// four values, all are the key and the first LATENT are the value. A workgroup computes HEADS heads over one split of
// the cache, in tiles of SPAN KV rows, by online softmax. For each head it leaves the output before it is divided by
// the sum of weights, the largest score, and that sum; lib/merge.wgsl joins what the splits leave.

const TEAMS = WORKGROUP / LANES;
const KEYS = 6u;    // chunks of a key that an invocation loads before it uses the first
const VALUES = 16u; // KV rows whose values it loads before it uses the first

var<storage, read> q: array<vec4<f32>>;
var<storage, read> cache: array<CacheElement>;
var<storage, read_write> parts: array<vec4<f32>>; // [row][head][split][chunk]
var<storage, read_write> stats: array<vec2<f32>>; // [row][head][split]: largest score, sum of weights

var<workgroup> queries: array<vec4<f32>, HEADS * KV_ROW>;
var<workgroup> scores: array<f32, SPAN * HEADS>; // [KV row][head]; weigh_tile makes weights of them
// These are bits of f32, which one lane leaves for all.
var<workgroup> tops: array<atomic<u32>, HEADS>;    // the largest scores so far
var<workgroup> totals: array<atomic<u32>, HEADS>;  // the sums of weights so far
var<workgroup> rescales: array<atomic<u32>, HEADS>; // what earlier weights are multiplied with

// Computes the scores of a tile's KV rows, which lie at `place` in the pool, for every head. `last` is the last of them
// that counts. A team takes two KV rows at a time, so that what it reads of the queries serves both.
fn score_tile(place: u32, last: u32, team: Team) {
    for (var t = 2u * team.index; t < SPAN; t += 2u * TEAMS) {
        let one = place + min(t, last); // a tile may reach past the split
        let two = place + min(t + 1u, last);
        var ones: array<f32, HEADS>;
        var twos: array<f32, HEADS>;
        for (var first = team.lane; first < KV_ROW; first += KEYS * LANES) {
            var keys: array<CacheChunk, 2u * KEYS>;
            for (var n = 0u; n < KEYS; n++) {
                let k = min(first + n * LANES, KV_ROW - 1u);
                keys[2u * n] = cache_chunk(one, k);
                keys[2u * n + 1u] = cache_chunk(two, k);
            }
            for (var n = 0u; n < KEYS; n++) {
                let k = first + n * LANES;
                let key_one = cache_unpacked(keys[2u * n], k);
                let key_two = cache_unpacked(keys[2u * n + 1u], k);
                for (var h = 0u; h < HEADS && k < KV_ROW; h++) {
                    let query = queries[h * KV_ROW + k];
                    ones[h] += dot(key_one, query);
                    twos[h] += dot(key_two, query);
                }
            }
        }
        for (var h = 0u; h < HEADS; h++) {
            let score_one = team_sum(ones[h], team);
            let score_two = team_sum(twos[h], team);
            // The same by all lanes: each then knows that what it read there before is no more.
            scores[t * HEADS + h] = select(LOWEST, SCALE * score_one, t <= last);
            scores[(t + 1u) * HEADS + h] = select(LOWEST, SCALE * score_two, t < last);
        }
    }
}

// Makes weights of the tile's scores, a head a team.
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

// Adds the weighted values of KV rows first..first + VALUES of the tile. Those past the end have a weight of zero.
fn add_values(sums: ptr<function, array<vec4<f32>, HEADS * CHUNKS>>, place: u32, first: u32, last: u32, local: u32) {
    for (var c = 0u; c < CHUNKS; c++) {
        let at = min(local + c * WORKGROUP, LATENT - 1u);
        var values: array<CacheChunk, VALUES>;
        for (var n = 0u; n < VALUES; n++) {
            values[n] = cache_chunk(place + min(first + n, last), at);
        }
        for (var n = 0u; n < VALUES; n++) {
            let value = cache_unpacked(values[n], at);
            for (var h = 0u; h < HEADS; h++) {
                (*sums)[h * CHUNKS + c] += scores[(first + n) * HEADS + h] * value;
            }
        }
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
    var sums: array<vec4<f32>, HEADS * CHUNKS>; // this invocation's chunks of the output
    for (var tile = split.start; tile < split.end; tile += SPAN) {
        let place = kv_place(first_page, tile);
        let last = split.end - 1u - tile;
        score_tile(place, last, team);
        workgroupBarrier();
        weigh_tile(team);
        workgroupBarrier();
        for (var h = 0u; h < HEADS; h++) {
            let rescale = bitcast<f32>(atomicLoad(&rescales[h]));
            for (var c = 0u; c < CHUNKS; c++) {
                sums[h * CHUNKS + c] *= rescale;
            }
        }
        for (var first = 0u; first < SPAN && first <= last; first += VALUES) {
            add_values(&sums, place, first, last, i.local);
        }
        workgroupBarrier(); // the weights are read before the next tile overwrites them
    }
    for (var h = 0u; h < HEADS && first_head + h < ALL_HEADS; h++) {
        let slot = (row * ALL_HEADS + first_head + h) * split_count() + workgroup.y;
        if i.local == 0u {
            stats[slot] = bitcast<vec2<f32>>(vec2<u32>(atomicLoad(&tops[h]), atomicLoad(&totals[h])));
        }
        for (var c = 0u; c < CHUNKS; c++) {
            let at = i.local + c * WORKGROUP;
            if at < LATENT {
                parts[slot * LATENT + at] = sums[h * CHUNKS + c];
            }
        }
    }
}
