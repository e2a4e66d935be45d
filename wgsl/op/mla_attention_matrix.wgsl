// Attention as in mla_attention, by cooperative matrices of 16 x 16 for ROWS = 16 heads at a time. A tile of
// SPAN lines of the cache is brought to workgroup memory once, where it is multiplied twice: as keys with the
// queries, whose columns PARTS subgroups share, and as values with the weights.
//
// Matrices multiply f16. The cache is f16; queries and weights are cut into TERMS of f16, so that two make them
// as good as f32. Weights are relative to a score that is at most MARGIN below the largest so far: only where one
// exceeds that by more are earlier sums brought down.

const LOWEST = -1e30; // below every score; finite, for fast-math compilers assume no infinity
const MARGIN = 6.0;
// Drivers flush f16 below 6e-5 to zero: queries and weights are multiplied with these, so that second terms are
// seldom so small. e^MARGIN times WEIGHT_UNIT is still far from what f16 can hold.
const QUERY_UNIT = 16.0;
const WEIGHT_UNIT = 64.0;
const ROWS = 16u;
const SUBGROUPS = WORKGROUP / 32u;
const PARTS = SUBGROUPS / (SPAN / 16u);
const KEY_STEPS = LINE / (16u * PARTS);          // matrices of a key that a subgroup multiplies
const VALUE_TILES = RANK / (16u * SUBGROUPS);    // matrices of a value that are a subgroup's
const CHUNKS = LINE / 4u;                        // of a line
const PITCH = LINE + 8u;                         // of a line in workgroup memory, so that rows fall on other banks
const SHARE = (SPAN * CHUNKS) / WORKGROUP;       // chunks of a tile that an invocation loads
const WEIGHT_PITCH = SPAN + 8u;

var<storage, read> q: array<vec4<f32>>;
var<storage, read> cache: array<vec4<f16>>;
var<storage, read_write> parts: array<f32>;       // [head][split][rank]
var<storage, read_write> stats: array<vec2<f32>>; // [head][split]: reference score, sum of weights

var<workgroup> lines: array<f16, SPAN * PITCH>;
var<workgroup> partial: array<f32, PARTS * ROWS * SPAN>;           // [part][head][token]: of the scores
var<workgroup> weights: array<f16, TERMS * ROWS * WEIGHT_PITCH>;   // [term][head][token]
var<workgroup> references: array<f32, ROWS>;
var<workgroup> totals: array<f32, ROWS>;
var<workgroup> shrinks: array<f32, ROWS>;
// Matrices are loaded from multiples of 16 bytes. Nothing says where a driver lays these arrays: each is of so many
// bytes that the next is at such a place, whichever it is.
var<workgroup> exceeded: vec4<u32>; // x: 1 if a score is more than MARGIN above its reference
var<workgroup> bounds: vec4<u32>;   // x, y: of the split

// This invocation's share of a tile. A tile may reach past the split: what lies there weighs nothing.
fn load_share(tile: u32, end: u32, local: u32) -> array<vec4<f16>, SHARE> {
    var share: array<vec4<f16>, SHARE>;
    for (var n = 0u; n < SHARE; n++) {
        let k = local + n * WORKGROUP;
        share[n] = cache[min(tile + k / CHUNKS, end - 1u) * CHUNKS + k % CHUNKS];
    }
    return share;
}

// Puts chunk k of a tile in its place.
fn put(k: u32, v: vec4<f16>) {
    let at = k / CHUNKS * PITCH + 4u * (k % CHUNKS);
    for (var n = 0u; n < 4u; n++) {
        lines[at + n] = v[n];
    }
}

// The leading bits of v, as many as f16 has. By masking: of a conversion there and back compilers make nothing.
fn leading(v: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(v) & 0xffffe000u);
}

// Term `term` of v: its leading bits, or what they leave.
fn term_of(v: vec4<f32>, term: u32) -> vec4<f16> {
    let held = clamp(v, vec4<f32>(-65504.0), vec4<f32>(65504.0));
    let first = vec4<f32>(leading(held.x), leading(held.y), leading(held.z), leading(held.w));
    return vec4<f16>(select(select(held, first, vec4<bool>(TERMS == 2u)), held - first, vec4<bool>(term == 1u)));
}

// Puts a term of the queries where the lines will be.
fn put_queries(first_head: u32, term: u32, local: u32) {
    for (var k = local; k < ROWS * CHUNKS; k += WORKGROUP) {
        put(k, term_of(QUERY_UNIT * q[first_head * CHUNKS + k], term));
    }
}

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
        let shrink = exp(before - reference);
        references[h] = reference;
        shrinks[h] = shrink;
        totals[h] = totals[h] * shrink + total;
        if reference != before {
            exceeded.x = 1u;
        }
    }
}

// Matrices are multiplied in control flow that the compiler sees to be the workgroup's: bounds are loaded by all at
// once, and what an invocation is told comes one by one, for of a struct it would take the least certain.
@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let team = team_of(Invocation(workgroup, local, subgroup, lane, 32u));
    if local == 0u {
        let split = split_of(workgroup.y, SPLITS, state.position + 1u);
        bounds = vec4<u32>(split.start, split.end, 0u, 0u);
    }
    let uniform_bounds = workgroupUniformLoad(&bounds);
    let split = Split(uniform_bounds.x, uniform_bounds.y);
    if split.start >= split.end {
        return;
    }
    let first_head = min(workgroup.x * ROWS, HEADS - ROWS); // the last heads overlap those before
    let part = subgroup % PARTS;
    let tokens = 16u * (subgroup / PARTS); // first token of those whose scores are this subgroup's
    var share = load_share(split.start, split.end, local);

    var a0 = coop_mat16x16<f16, A>();
    var a1 = coop_mat16x16<f16, A>();
    var a2 = coop_mat16x16<f16, A>();
    var a3 = coop_mat16x16<f16, A>();
    var a4 = coop_mat16x16<f16, A>();
    var a5 = coop_mat16x16<f16, A>();
    var a6 = coop_mat16x16<f16, A>();
    var a7 = coop_mat16x16<f16, A>();
    var a8 = coop_mat16x16<f16, A>();
    var b0 = coop_mat16x16<f16, A>();
    var b1 = coop_mat16x16<f16, A>();
    var b2 = coop_mat16x16<f16, A>();
    var b3 = coop_mat16x16<f16, A>();
    var b4 = coop_mat16x16<f16, A>();
    var b5 = coop_mat16x16<f16, A>();
    var b6 = coop_mat16x16<f16, A>();
    var b7 = coop_mat16x16<f16, A>();
    var b8 = coop_mat16x16<f16, A>();
    let pitch = PITCH;
    put_queries(first_head, 0u, local);
    workgroupBarrier();
    if KEY_STEPS > 0u {
        let at0 = 16u * (part * KEY_STEPS + 0u);
        a0 = coopLoadT<coop_mat16x16<f16, A>>(&lines[at0], pitch);
    }
    if KEY_STEPS > 1u {
        let at1 = 16u * (part * KEY_STEPS + 1u);
        a1 = coopLoadT<coop_mat16x16<f16, A>>(&lines[at1], pitch);
    }
    if KEY_STEPS > 2u {
        let at2 = 16u * (part * KEY_STEPS + 2u);
        a2 = coopLoadT<coop_mat16x16<f16, A>>(&lines[at2], pitch);
    }
    if KEY_STEPS > 3u {
        let at3 = 16u * (part * KEY_STEPS + 3u);
        a3 = coopLoadT<coop_mat16x16<f16, A>>(&lines[at3], pitch);
    }
    if KEY_STEPS > 4u {
        let at4 = 16u * (part * KEY_STEPS + 4u);
        a4 = coopLoadT<coop_mat16x16<f16, A>>(&lines[at4], pitch);
    }
    if KEY_STEPS > 5u {
        let at5 = 16u * (part * KEY_STEPS + 5u);
        a5 = coopLoadT<coop_mat16x16<f16, A>>(&lines[at5], pitch);
    }
    if KEY_STEPS > 6u {
        let at6 = 16u * (part * KEY_STEPS + 6u);
        a6 = coopLoadT<coop_mat16x16<f16, A>>(&lines[at6], pitch);
    }
    if KEY_STEPS > 7u {
        let at7 = 16u * (part * KEY_STEPS + 7u);
        a7 = coopLoadT<coop_mat16x16<f16, A>>(&lines[at7], pitch);
    }
    if KEY_STEPS > 8u {
        let at8 = 16u * (part * KEY_STEPS + 8u);
        a8 = coopLoadT<coop_mat16x16<f16, A>>(&lines[at8], pitch);
    }
    workgroupBarrier();
    if TERMS == 2u {
        put_queries(first_head, 1u, local);
        workgroupBarrier();
        if KEY_STEPS > 0u {
            let at0 = 16u * (part * KEY_STEPS + 0u);
            b0 = coopLoadT<coop_mat16x16<f16, A>>(&lines[at0], pitch);
        }
        if KEY_STEPS > 1u {
            let at1 = 16u * (part * KEY_STEPS + 1u);
            b1 = coopLoadT<coop_mat16x16<f16, A>>(&lines[at1], pitch);
        }
        if KEY_STEPS > 2u {
            let at2 = 16u * (part * KEY_STEPS + 2u);
            b2 = coopLoadT<coop_mat16x16<f16, A>>(&lines[at2], pitch);
        }
        if KEY_STEPS > 3u {
            let at3 = 16u * (part * KEY_STEPS + 3u);
            b3 = coopLoadT<coop_mat16x16<f16, A>>(&lines[at3], pitch);
        }
        if KEY_STEPS > 4u {
            let at4 = 16u * (part * KEY_STEPS + 4u);
            b4 = coopLoadT<coop_mat16x16<f16, A>>(&lines[at4], pitch);
        }
        if KEY_STEPS > 5u {
            let at5 = 16u * (part * KEY_STEPS + 5u);
            b5 = coopLoadT<coop_mat16x16<f16, A>>(&lines[at5], pitch);
        }
        if KEY_STEPS > 6u {
            let at6 = 16u * (part * KEY_STEPS + 6u);
            b6 = coopLoadT<coop_mat16x16<f16, A>>(&lines[at6], pitch);
        }
        if KEY_STEPS > 7u {
            let at7 = 16u * (part * KEY_STEPS + 7u);
            b7 = coopLoadT<coop_mat16x16<f16, A>>(&lines[at7], pitch);
        }
        if KEY_STEPS > 8u {
            let at8 = 16u * (part * KEY_STEPS + 8u);
            b8 = coopLoadT<coop_mat16x16<f16, A>>(&lines[at8], pitch);
        }
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
            exceeded.x = 0u;
        }
        workgroupBarrier();
        share = load_share(tile + SPAN, split.end, local); // on its way while this tile is computed

        var scores = coop_mat16x16<f32, C>();
        if KEY_STEPS > 0u {
            let at0 = tokens * PITCH + 16u * (part * KEY_STEPS + 0u);
            let keys0 = coopLoad<coop_mat16x16<f16, B>>(&lines[at0], pitch);
            scores = coopMultiplyAdd(a0, keys0, scores);
            if TERMS == 2u {
                scores = coopMultiplyAdd(b0, keys0, scores);
            }
        }
        if KEY_STEPS > 1u {
            let at1 = tokens * PITCH + 16u * (part * KEY_STEPS + 1u);
            let keys1 = coopLoad<coop_mat16x16<f16, B>>(&lines[at1], pitch);
            scores = coopMultiplyAdd(a1, keys1, scores);
            if TERMS == 2u {
                scores = coopMultiplyAdd(b1, keys1, scores);
            }
        }
        if KEY_STEPS > 2u {
            let at2 = tokens * PITCH + 16u * (part * KEY_STEPS + 2u);
            let keys2 = coopLoad<coop_mat16x16<f16, B>>(&lines[at2], pitch);
            scores = coopMultiplyAdd(a2, keys2, scores);
            if TERMS == 2u {
                scores = coopMultiplyAdd(b2, keys2, scores);
            }
        }
        if KEY_STEPS > 3u {
            let at3 = tokens * PITCH + 16u * (part * KEY_STEPS + 3u);
            let keys3 = coopLoad<coop_mat16x16<f16, B>>(&lines[at3], pitch);
            scores = coopMultiplyAdd(a3, keys3, scores);
            if TERMS == 2u {
                scores = coopMultiplyAdd(b3, keys3, scores);
            }
        }
        if KEY_STEPS > 4u {
            let at4 = tokens * PITCH + 16u * (part * KEY_STEPS + 4u);
            let keys4 = coopLoad<coop_mat16x16<f16, B>>(&lines[at4], pitch);
            scores = coopMultiplyAdd(a4, keys4, scores);
            if TERMS == 2u {
                scores = coopMultiplyAdd(b4, keys4, scores);
            }
        }
        if KEY_STEPS > 5u {
            let at5 = tokens * PITCH + 16u * (part * KEY_STEPS + 5u);
            let keys5 = coopLoad<coop_mat16x16<f16, B>>(&lines[at5], pitch);
            scores = coopMultiplyAdd(a5, keys5, scores);
            if TERMS == 2u {
                scores = coopMultiplyAdd(b5, keys5, scores);
            }
        }
        if KEY_STEPS > 6u {
            let at6 = tokens * PITCH + 16u * (part * KEY_STEPS + 6u);
            let keys6 = coopLoad<coop_mat16x16<f16, B>>(&lines[at6], pitch);
            scores = coopMultiplyAdd(a6, keys6, scores);
            if TERMS == 2u {
                scores = coopMultiplyAdd(b6, keys6, scores);
            }
        }
        if KEY_STEPS > 7u {
            let at7 = tokens * PITCH + 16u * (part * KEY_STEPS + 7u);
            let keys7 = coopLoad<coop_mat16x16<f16, B>>(&lines[at7], pitch);
            scores = coopMultiplyAdd(a7, keys7, scores);
            if TERMS == 2u {
                scores = coopMultiplyAdd(b7, keys7, scores);
            }
        }
        if KEY_STEPS > 8u {
            let at8 = tokens * PITCH + 16u * (part * KEY_STEPS + 8u);
            let keys8 = coopLoad<coop_mat16x16<f16, B>>(&lines[at8], pitch);
            scores = coopMultiplyAdd(a8, keys8, scores);
            if TERMS == 2u {
                scores = coopMultiplyAdd(b8, keys8, scores);
            }
        }
        let to = part * ROWS * SPAN + tokens;
        let span = SPAN;
        coopStoreT(scores, &partial[to], span);
        workgroupBarrier();
        weigh_tile(tile, split.end, team);

        if workgroupUniformLoad(&exceeded).x == 1u {
            let scratch = 256u * subgroup; // the scores are done with
            let square = 16u;
            if VALUE_TILES > 0u {
                coopStoreT(sum0, &partial[scratch], square);
                workgroupBarrier();
                for (var k = lane; k < 256u; k += 32u) {
                    partial[scratch + k] *= shrinks[k / 16u];
                }
                workgroupBarrier();
                sum0 = coopLoadT<coop_mat16x16<f32, C>>(&partial[scratch], square);
                workgroupBarrier();
            }
            if VALUE_TILES > 1u {
                coopStoreT(sum1, &partial[scratch], square);
                workgroupBarrier();
                for (var k = lane; k < 256u; k += 32u) {
                    partial[scratch + k] *= shrinks[k / 16u];
                }
                workgroupBarrier();
                sum1 = coopLoadT<coop_mat16x16<f32, C>>(&partial[scratch], square);
                workgroupBarrier();
            }
            if VALUE_TILES > 2u {
                coopStoreT(sum2, &partial[scratch], square);
                workgroupBarrier();
                for (var k = lane; k < 256u; k += 32u) {
                    partial[scratch + k] *= shrinks[k / 16u];
                }
                workgroupBarrier();
                sum2 = coopLoadT<coop_mat16x16<f32, C>>(&partial[scratch], square);
                workgroupBarrier();
            }
            if VALUE_TILES > 3u {
                coopStoreT(sum3, &partial[scratch], square);
                workgroupBarrier();
                for (var k = lane; k < 256u; k += 32u) {
                    partial[scratch + k] *= shrinks[k / 16u];
                }
                workgroupBarrier();
                sum3 = coopLoadT<coop_mat16x16<f32, C>>(&partial[scratch], square);
                workgroupBarrier();
            }
        }
        for (var k = 0u; k < SPAN / 16u; k++) {
            for (var term = 0u; term < TERMS; term++) {
                let from_weights = term * ROWS * WEIGHT_PITCH + 16u * k;
                let weight_pitch = WEIGHT_PITCH;
                let shares = coopLoadT<coop_mat16x16<f16, A>>(&weights[from_weights], weight_pitch);
                if VALUE_TILES > 0u {
                    let at0 = 16u * k * PITCH + 16u * (subgroup * VALUE_TILES + 0u);
                    let values0 = coopLoadT<coop_mat16x16<f16, B>>(&lines[at0], pitch);
                    sum0 = coopMultiplyAdd(shares, values0, sum0);
                }
                if VALUE_TILES > 1u {
                    let at1 = 16u * k * PITCH + 16u * (subgroup * VALUE_TILES + 1u);
                    let values1 = coopLoadT<coop_mat16x16<f16, B>>(&lines[at1], pitch);
                    sum1 = coopMultiplyAdd(shares, values1, sum1);
                }
                if VALUE_TILES > 2u {
                    let at2 = 16u * k * PITCH + 16u * (subgroup * VALUE_TILES + 2u);
                    let values2 = coopLoadT<coop_mat16x16<f16, B>>(&lines[at2], pitch);
                    sum2 = coopMultiplyAdd(shares, values2, sum2);
                }
                if VALUE_TILES > 3u {
                    let at3 = 16u * k * PITCH + 16u * (subgroup * VALUE_TILES + 3u);
                    let values3 = coopLoadT<coop_mat16x16<f16, B>>(&lines[at3], pitch);
                    sum3 = coopMultiplyAdd(shares, values3, sum3);
                }
            }
        }
        workgroupBarrier(); // lines and weights are read before the next tile overwrites them
    }

    let slot = first_head * SPLITS + workgroup.y;
    if local < ROWS {
        stats[slot + local * SPLITS] = vec2<f32>(references[local], totals[local]);
    }
    let part_pitch = SPLITS * RANK;
    if VALUE_TILES > 0u {
        let to0 = slot * RANK + 16u * (subgroup * VALUE_TILES + 0u);
        coopStoreT(sum0, &parts[to0], part_pitch);
    }
    if VALUE_TILES > 1u {
        let to1 = slot * RANK + 16u * (subgroup * VALUE_TILES + 1u);
        coopStoreT(sum1, &parts[to1], part_pitch);
    }
    if VALUE_TILES > 2u {
        let to2 = slot * RANK + 16u * (subgroup * VALUE_TILES + 2u);
        coopStoreT(sum2, &parts[to2], part_pitch);
    }
    if VALUE_TILES > 3u {
        let to3 = slot * RANK + 16u * (subgroup * VALUE_TILES + 3u);
        coopStoreT(sum3, &parts[to3], part_pitch);
    }
}
