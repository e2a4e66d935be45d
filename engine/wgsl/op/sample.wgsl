// The next token of each row's sequence: the likeliest, or a draw from those that pass the filters. One workgroup for
// each row.
//
// top_k, top_p (over the tokens that pass top_k, at temperature 1) and min_p all keep the first tokens of one order, so
// together they are the position of the last token that passes. It is found digit by digit: the histogram gives the
// first digit, and for each further one the tokens that share the digits before it are counted, until a bin has a
// single token. Slices whose largest logit is too low are skipped.

struct Params {
    count: u32,
    pitch: u32,  // from one row's logits to the next, in vec4s
    slices: u32, // of SLICE logits, each with a maximum
    scale: f32,  // of the histogram's deficits
}

struct Kept {
    last: vec2<u32>, // the position of the last one
    tokens: Tokens,
}

const SLICE_LANES = 64u; // invocations that share a slice
const CHUNKS = SLICE / (4u * SLICE_LANES);
const HUGE = 3e38;

var<uniform> params: Params;
var<storage, read> logits: array<vec4<u32>>; // the bits of f32
var<storage, read> histogram: array<u32>;
var<storage, read_write> sampled: array<u32>; // for each entry: chosen, likeliest, how many passed top_k and top_p

var<private> way: Sampling; // of the row's sequence

var<workgroup> counts: array<atomic<u32>, BINS>;

fn count_of(bin: u32, level: u32) -> u32 {
    if level == 0u {
        return histogram[2u * BINS * row + bin];
    }
    return atomicLoad(&counts[bin]);
}

fn mass_of(bin: u32, count: u32, level: u32, first: vec2<u32>) -> f32 {
    if level == 0u {
        return (f32(count) - f32(histogram[2u * BINS * row + BINS + bin]) / params.scale) * weight_of(0.125 * f32(bin));
    }
    // At this level a bin is so narrow that its middle represents all of it.
    let units = first.x + place_with(bin, level).x + (after(level).x + 1u) / 2u;
    return f32(count) * weight_of(f32(units) / UNITS);
}

fn place_of(logit: f32, id: u32, top: f32) -> vec2<u32> {
    return vec2<u32>(units_of(gap_of(logit, top)), id);
}

// Counts the tokens that share the digits of `prefix` before this level by their digit at it.
fn count_digits(level: u32, prefix: vec2<u32>, top: f32, local: u32) {
    workgroupBarrier(); // earlier counts may still be read
    for (var bin = local; bin < BINS; bin += WORKGROUP) {
        atomicStore(&counts[bin], 0u);
    }
    workgroupBarrier();
    let open = after(level - 1u);
    for (var slice = local / SLICE_LANES; slice < params.slices; slice += WORKGROUP / SLICE_LANES) {
        let largest = maximum_of(slice);
        if largest.token == NO_TOKEN || place_of(largest.score, 0u, top).x > (prefix.x | open.x) {
            continue;
        }
        for (var chunk = 0u; chunk < CHUNKS; chunk++) {
            let first = slice * SLICE + 4u * (chunk * SLICE_LANES + local % SLICE_LANES);
            if first < params.count {
                count_four(first, level, prefix, open, top);
            }
        }
    }
    workgroupBarrier();
}

fn count_four(first: u32, level: u32, prefix: vec2<u32>, open: vec2<u32>, top: f32) {
    let four = logits[row * params.pitch + first / 4u];
    for (var k = 0u; k < 4u; k++) {
        if first + k < params.count && is_number(four[k]) {
            let place = place_of(bitcast<f32>(four[k]), first + k, top);
            if all((place | open) == (prefix | open)) {
                atomicAdd(&counts[digit_of(place, level)], 1u);
            }
        }
    }
}

// The first tokens that reach the wanted count or mass; all of them if they do not.
fn search(want: Tokens, top: f32, local: u32) -> Kept {
    var kept = Kept(vec2<u32>(0u), Tokens(0u, 0.0));
    for (var level = 0u; level < LEVELS; level++) {
        if level > 0u {
            count_digits(level, kept.last, top, local);
        }
        let left = Tokens(want.count - kept.tokens.count, want.mass - kept.tokens.mass);
        let it = find_bin(level, kept.last, left, local);
        if level == 0u && !it.reached {
            return Kept(vec2<u32>(0x3fffffffu), it.all);
        }
        kept.last += place_with(it.bin, level);
        kept.tokens = plus(kept.tokens, it.before);
        if it.inside.count <= 1u || level + 1u == LEVELS {
            kept.last |= after(level);
            kept.tokens = plus(kept.tokens, it.inside);
            break;
        }
    }
    return kept;
}

// The last position that passes top_k and top_p, and the number of tokens up to it.
fn filtered(top: f32, local: u32) -> Kept {
    if way.top_k >= params.count && way.top_p >= 1.0 {
        return Kept(vec2<u32>(0x3fffffffu), Tokens(params.count, 0.0));
    }
    var kept = search(Tokens(way.top_k, HUGE), top, local);
    if way.top_p < 1.0 {
        kept = search(Tokens(kept.tokens.count, way.top_p * kept.tokens.mass), top, local);
    }
    return kept;
}

// The winner of the draw among four tokens.
fn draw_four(first: u32, last: vec2<u32>, top: f32) -> Candidate {
    let four = logits[row * params.pitch + first / 4u];
    let noise = pcg4d(vec4<u32>(first / 4u, batch.rows[row].position, way.seed[0], way.seed[1]));
    var best = NO_CANDIDATE;
    for (var k = 0u; k < 4u; k++) {
        if first + k >= params.count || !is_number(four[k]) {
            continue;
        }
        let logit = bitcast<f32>(four[k]);
        let gap = gap_of(logit, top);
        if gap <= way.reach && not_after(place_of(logit, first + k, top), last) {
            best = better(best, Candidate(gumbel(noise[k]) - gap * way.sharpness, first + k));
        }
    }
    return best;
}

fn draw(last: vec2<u32>, top: f32, local: u32) -> Candidate {
    var best = NO_CANDIDATE;
    for (var slice = local / SLICE_LANES; slice < params.slices; slice += WORKGROUP / SLICE_LANES) {
        let largest = maximum_of(slice);
        if largest.token == NO_TOKEN || gap_of(largest.score, top) > way.reach
            || place_of(largest.score, 0u, top).x > last.x {
            continue;
        }
        for (var chunk = 0u; chunk < CHUNKS; chunk++) {
            let first = slice * SLICE + 4u * (chunk * SLICE_LANES + local % SLICE_LANES);
            if first < params.count {
                best = better(best, draw_four(first, last, top));
            }
        }
    }
    return best_of_workgroup(best, local);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    row = workgroup.x;
    if workgroup.x >= row_count() {
        return;
    }
    way = sampling[batch.rows[row].sequence];
    let top = likeliest(params.slices, local);
    var chosen = top.token;
    var count = 1u;
    if way.sharpness > 0.0 && top.token != NO_TOKEN {
        let kept = filtered(top.score, local);
        chosen = draw(kept.last, top.score, local).token;
        count = kept.tokens.count;
    }
    if local == 0u {
        let place = SAMPLED_WORDS * batch.rows[row].result;
        sampled[place] = chosen;
        sampled[place + 1u] = top.token;
        sampled[place + 2u] = count;
    }
}
