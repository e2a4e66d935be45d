// Activations in bytes, as lib/rounding.wgsl makes them.

// A group in the registers of a lane, for all the rows it works on.
struct Group {
    low: vec4<u32>,    // values 0..15, four to a word
    high: vec4<u32>,   // values 16..31
    scales: vec2<f32>, // of each half
    sums: vec2<f32>,   // of the rounded values of each half
}
