// Weights of a tile of scores, for attention of a chunk by matrices: four invocations make those of a row.
//
// They are relative to a score that is at most MARGIN below the largest so far: only where one exceeds that by more
// are earlier sums brought down.

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
