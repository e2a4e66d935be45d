// Attention of HEADS absorbed queries over one split of the latent cache, which all heads share: a line
// of the cache is the key, its first `rank` values are the value. Online softmax over tiles of SPAN
// tokens. Leaves, per head and split, the unnormalised output, its largest score and its sum of weights.

struct Params {
    heads: u32,
    rank: u32,     // values of the latent
    line: u32,     // chunks of 4 values from one token's line to the next's, and from one head's query to the next's
    splits: u32,
    scale: f32,    // on the scores: 1 / sqrt(key width of a head before absorption)
}

const LOWEST = -1e30; // below every score; finite, for fast-math compilers assume no infinity

var<uniform> params: Params;
var<storage, read> q: array<vec4<f32>>;
var<storage, read> cache: array<CacheChunk>;
var<storage, read_write> parts: array<f32>;      // [head][split][rank]
var<storage, read_write> stats: array<vec2<f32>>; // [head][split]: largest score, sum of weights

var<workgroup> scores: array<f32, HEADS * SPAN>;

// Scores of the tile's tokens for every head, a token a team.
fn score_tile(first_head: u32, tile: u32, end: u32, team: Team) {
    for (var t = team.index; t < SPAN; t += WORKGROUP / LANES) {
        let token = min(tile + t, end - 1u); // a tile may reach past the split
        var sums: array<f32, HEADS>;
        for (var k = team.lane; k < params.line; k += LANES) {
            let key = cache_unpacked(cache[token * params.line + k]);
            for (var h = 0u; h < HEADS; h++) {
                sums[h] += dot(key, q[min(first_head + h, params.heads - 1u) * params.line + k]);
            }
        }
        for (var h = 0u; h < HEADS; h++) {
            let score = team_sum(sums[h], team) * params.scale;
            if team.lane == 0u {
                scores[h * SPAN + t] = select(LOWEST, score, tile + t < end);
            }
        }
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let team = team_of(i);
    let first_head = i.workgroup.x * HEADS;
    let split = split_of(i.workgroup.y, params.splits, state.position + 1u);
    if split.start >= split.end {
        return;
    }
    var top: array<f32, HEADS>;
    var total: array<f32, HEADS>;
    var sums: array<vec4<f32>, HEADS * CHUNKS>; // this invocation's values of the output, four to a chunk
    for (var h = 0u; h < HEADS; h++) {
        top[h] = LOWEST;
    }
    for (var tile = split.start; tile < split.end; tile += SPAN) {
        score_tile(first_head, tile, split.end, team);
        workgroupBarrier();
        for (var h = 0u; h < HEADS; h++) {
            var largest = top[h];
            for (var t = 0u; t < SPAN; t++) {
                largest = max(largest, scores[h * SPAN + t]);
            }
            let shrink = exp(top[h] - largest);
            top[h] = largest;
            total[h] *= shrink;
            for (var c = 0u; c < CHUNKS; c++) {
                sums[h * CHUNKS + c] *= shrink;
            }
        }
        workgroupBarrier();
        for (var k = i.local; k < HEADS * SPAN; k += WORKGROUP) {
            scores[k] = exp(scores[k] - top[k / SPAN]); // from here on the scores are weights
        }
        workgroupBarrier();
        let count = min(SPAN, split.end - tile);
        for (var t = 0u; t < count; t++) {
            for (var h = 0u; h < HEADS; h++) {
                total[h] += scores[h * SPAN + t];
            }
            for (var c = 0u; c < CHUNKS; c++) {
                let at = i.local + c * WORKGROUP;
                if 4u * at < params.rank {
                    let value = cache_unpacked(cache[(tile + t) * params.line + at]);
                    for (var h = 0u; h < HEADS; h++) {
                        sums[h * CHUNKS + c] += scores[h * SPAN + t] * value;
                    }
                }
            }
        }
        workgroupBarrier(); // the weights are read before the next tile overwrites them
    }
    for (var h = 0u; h < HEADS && first_head + h < params.heads; h++) {
        let slot = (first_head + h) * params.splits + i.workgroup.y;
        if i.local == 0u {
            stats[slot] = vec2<f32>(top[h], total[h]);
        }
        for (var c = 0u; c < CHUNKS; c++) {
            let at = 4u * (i.local + c * WORKGROUP);
            for (var k = 0u; k < 4u && at + k < params.rank; k++) {
                parts[slot * params.rank + at + k] = sums[h * CHUNKS + c][k];
            }
        }
    }
}
