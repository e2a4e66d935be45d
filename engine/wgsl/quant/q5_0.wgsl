// Q5_0: d · (q − 16), one d for 32 values.

const w_zero = 0u;
const w_units = vec4<f32>(1.0, 1.0, 0x1p-4, 0x1p-4);
var<storage, read> w_nibbles: array<vec4<u32>>;
var<storage, read> w_bits: array<u32>;
var<storage, read> w_scales: array<u32>; // two d a word

fn w_bytes(g: u32) -> Bytes {
    return five_bit_bytes(w_nibbles[g], w_bits[g]);
}

fn w_pairs(g: u32) -> Pairs {
    return five_bit_pairs(w_nibbles[g], w_bits[g]);
}

fn w_affine(g: u32) -> vec4<f32> {
    let d = half_of(w_scales[g >> 1u], g);
    return vec4<f32>(d, d, -16.0 * d, -16.0 * d);
}
