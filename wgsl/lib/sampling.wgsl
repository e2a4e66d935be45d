// How tokens of each sequence are sampled: src/kernels/sampling.rs.

struct Sampling {
    seed: array<u32, 2>,
    top_k: u32,     // all ones for no such filter
    top_p: f32,     // 1 for no such filter
    sharpness: f32, // 2 / temperature, a factor on gaps; 0 to take the likeliest
    reach: f32,     // the largest gap that min_p keeps, or that the temperature leaves a chance of 1e-11
    repeat: f32,    // the penalties on tokens that were there before: see op/adjust.wgsl
    presence: f32,
    frequency: f32,
}

var<storage, read> sampling: array<Sampling>;
