// The order of tokens for filters: the likeliest first, and among equals the one with the lowest id.
//
// A token's gap is half the difference between its logit and the largest: half, so that it is always finite. Its
// position in the order is two numbers of 30 bits: the gap in units of 2^-23, then the id. So logits within 2^-22 of
// each other count as equal, and so do all that are more than 256 below the largest.

const UNITS = 0x1p23; // of a gap of 1
const LARGEST_GAP = 127.9999;

fn gap_of(logit: f32, top: f32) -> f32 {
    return 0.5 * top - 0.5 * logit;
}

fn units_of(gap: f32) -> u32 {
    return u32(min(gap, LARGEST_GAP) * UNITS);
}

// The probability relative to the likeliest token's, at temperature 1.
fn weight_of(gap: f32) -> f32 {
    return exp(-2.0 * gap);
}

// A position has six digits of ten bits. BINS is 1024.
const LEVELS = 6u;

fn shift_of(level: u32) -> u32 {
    return 20u - 10u * (level % 3u);
}

fn digit_of(place: vec2<u32>, level: u32) -> u32 {
    return (select(place.y, place.x, level < 3u) >> shift_of(level)) & (BINS - 1u);
}

// A position with this digit, and zeros in the others.
fn place_with(digit: u32, level: u32) -> vec2<u32> {
    let word = digit << shift_of(level);
    return select(vec2<u32>(0u, word), vec2<u32>(word, 0u), level < 3u);
}

// Ones in all digits after this one.
fn after(level: u32) -> vec2<u32> {
    let ones = (1u << shift_of(level)) - 1u;
    return select(vec2<u32>(0u, ones), vec2<u32>(ones, 0x3fffffffu), level < 3u);
}

fn not_after(place: vec2<u32>, last: vec2<u32>) -> bool {
    return place.x < last.x || (place.x == last.x && place.y <= last.y);
}
