// How tokens of each sequence are sampled: src/kernels/sampling.rs.

struct Sampling {
    seed: array<u32, 2>,
    top_k: u32,     // all ones for no such filter
    top_p: f32,     // 1 for no such filter
    sharpness: f32, // 2 / temperature, a factor on gaps; 0 to take the likeliest
    reach: f32,     // the largest gap that passes min_p, or has a chance of 1e-11 at this temperature
    repeat: f32,    // the penalties on tokens that occurred before: see op/adjust.wgsl
    presence: f32,
    frequency: f32,
}

var<storage, read> sampling: array<Sampling>;
