// IQ4_NL: d · t[q], one d for 32 values, with a table t of 16.

const w_zero = 128u;
const w_units = vec4<f32>(1.0);
var<storage, read> w_planes: array<vec4<u32>>;
var<storage, read> w_scales: array<u32>; // two d a word

fn w_bytes(g: u32) -> Bytes {
    return uneven_bytes(w_planes[g]);
}

fn w_pairs(g: u32) -> Pairs {
    return byte_pairs(w_bytes(g));
}

fn w_affine(g: u32) -> vec4<f32> {
    let d = half_of(w_scales[g >> 1u], g);
    return vec4<f32>(d, d, 0.0, 0.0);
}
