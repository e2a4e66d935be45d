// The range of f16. Values that may be beyond it are limited where they are written, not where they are read, which
// happens far more often: rows of the cache, and gated products. Normalised vectors, queries, keys and values are far
// below it.

// Finite values beyond the range of f16 are limited to its largest value, because they would otherwise become infinite.
// NaN and infinity are left unchanged: results computed from damaged weights must not look valid, and `clamp` would
// turn them into numbers. They are recognised by their bits, because compilers may assume that no value is one of them.
fn in_half_range(v: vec4<f32>) -> vec4<f32> {
    let magnitudes = bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
    return select(clamp(v, vec4<f32>(-65504.0), vec4<f32>(65504.0)), v, magnitudes >= vec4<u32>(0x7f800000u));
}
