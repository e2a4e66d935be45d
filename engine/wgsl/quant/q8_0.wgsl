// Q8_0: d · q with signed q, one d for 32 values.

const w_zero = 128u;
const w_units = vec4<f32>(1.0);
var<storage, read> w_values: array<vec4<u32>>;
var<storage, read> w_scales: array<u32>; // two d a word

fn w_bytes(g: u32) -> Bytes {
    return Bytes(w_values[2u * g], w_values[2u * g + 1u]);
}

fn w_pairs(g: u32) -> Pairs {
    return byte_pairs(w_bytes(g));
}

fn w_affine(g: u32) -> vec4<f32> {
    let d = half_of(w_scales[g >> 1u], g);
    return vec4<f32>(d, d, 0.0, 0.0);
}
