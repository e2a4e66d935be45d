// Online softmax, for attention with matrices: weights are computed tile after tile. A row's weights are relative to a
// score, its reference, which is at most MARGIN below the largest so far. Only if a score exceeds it by more does the
// reference change, and earlier sums are rescaled. LANES neighbouring invocations, 2 to 16, share the scores of a row.
// Weights are multiplied by WEIGHT_UNIT, so that f16 can represent small ones.
//
// Each kernel reads scores and writes weights itself, because that depends on what matrices are loaded from: those of 8
// x 8 only from arrays of scalars, those of 16 x 16 also from arrays of vec4s.

const MARGIN = 6.0; // e^6 times WEIGHT_UNIT is far below the largest f16

// An invocation's state of its row.
struct Softmax {
    seen: u32,      // KV rows up to the row's own token's
    reference: f32,
    total: f32,     // of this invocation's weights
}

// The reference after `before` if the largest score of a tile is `top`.
fn reference_after(before: f32, top: f32) -> f32 {
    return select(before, top, top > before + MARGIN);
}

// The factor that makes weights relative to `before` relative to `reference`.
fn rescale_to(reference: f32, before: f32) -> f32 {
    return exp(before - reference);
}

// Whether earlier sums must be rescaled. Before the first tile there are none.
fn has_to_rescale(reference: f32, before: f32) -> bool {
    return reference != before && before > LOWEST;
}

// The largest v, and the sum, over the invocations that share a row.
fn row_max(v: f32) -> f32 {
    var largest = max(v, subgroupShuffleXor(v, 1u));
    if LANES > 2u { largest = max(largest, subgroupShuffleXor(largest, 2u)); }
    if LANES > 4u { largest = max(largest, subgroupShuffleXor(largest, 4u)); }
    if LANES > 8u { largest = max(largest, subgroupShuffleXor(largest, 8u)); }
    return largest;
}

fn row_sum(v: f32) -> f32 {
    var sum = v + subgroupShuffleXor(v, 1u);
    if LANES > 2u { sum += subgroupShuffleXor(sum, 2u); }
    if LANES > 4u { sum += subgroupShuffleXor(sum, 4u); }
    if LANES > 8u { sum += subgroupShuffleXor(sum, 8u); }
    return sum;
}
