// Noise that depends only on the seed, the position and the token, so that a draw does not depend on the order of work.

// Four words from four: PCG4D of Jarzynski and Olano, "Hash Functions for GPU Rendering" (JCGT 9, 2020).
fn pcg4d(key: vec4<u32>) -> vec4<u32> {
    var v = key * 1664525u + 1013904223u;
    v.x += v.y * v.w;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v.w += v.y * v.z;
    v ^= v >> vec4<u32>(16u);
    v.x += v.y * v.w;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v.w += v.y * v.z;
    return v;
}

// Gumbel noise: minus the logarithm of an exponential waiting time, -log(1 - u). The token with the largest
// sum of log-probability and such noise is a draw from the distribution.
fn gumbel(bits: u32) -> f32 {
    let u = (f32(bits) + 0.5) * 0x1p-32;
    let rest = (f32(~bits) + 0.5) * 0x1p-32; // 1 - u, with all its bits if it is small
    let series = u * (1.0 + u * (0.5 + u * (0.33333334 + 0.25 * u))); // the same for small u
    return -log(select(-log(rest), series, u < 0.03125));
}
