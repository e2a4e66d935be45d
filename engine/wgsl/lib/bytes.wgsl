// Activations in bytes, as lib/rounding.wgsl makes them.

// A group in the registers of a lane, for all the rows it works on.
struct Group {
    low: vec4<u32>,    // values 0..15, four to a word
    high: vec4<u32>,   // values 16..31
    scales: vec2<f32>, // of each half
    sums: vec2<f32>,   // of the rounded values of each half
}

// The dot product of a group of a matrix and one of activations, from the dot products of their bytes. Each operation
// rounds once, whatever surrounds it, since drivers compile fma to one instruction. With dot products of vectors,
// compilers would decide which of the operations are fused, and the same product could have other bits in another
// kernel. Products of neighbouring terms have no factor in
// common, even if both halves have the same scale and offset: a compiler that knows that would factor it out.
fn affine_dot(affine: vec4<f32>, low: i32, high: i32, scales: vec2<f32>, sums: vec2<f32>) -> f32 {
    let both = affine.xy * scales;
    return fma(affine.z, sums.x, fma(f32(low), both.x, fma(f32(high), both.y, affine.w * sums.y)));
}
