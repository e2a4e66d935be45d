// Activations in f32.

// A group in the registers of a lane, for all the rows it works on.
struct Group {
    raw: array<vec4<f32>, 8>,
    sums: vec2<f32>, // of values 0..15 and of values 16..31
}
