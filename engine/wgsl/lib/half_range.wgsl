// The range of f16. Values that may be beyond it are limited where they are written, not where they are read, which
// happens far more often: rows of the cache, and gated products. Normalised vectors, queries, keys and values are far
// below it.

// Values beyond the range of f16 become its largest, because they would be infinite. NaN and infinity stay what they
// are: what is computed from damaged weights must not look like a number, and `clamp` would make them numbers. They are
// recognised by their bits, because compilers may assume that no value is one of them.
fn in_half_range(v: vec4<f32>) -> vec4<f32> {
    let magnitudes = bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
    return select(clamp(v, vec4<f32>(-65504.0), vec4<f32>(65504.0)), v, magnitudes >= vec4<u32>(0x7f800000u));
}
