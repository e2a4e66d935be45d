// Q4_1: d · q + m, one d and m for 32 values.

const w_zero = 0u;
const w_units = vec4<f32>(1.0, 1.0, 0x1p-4, 0x1p-4);
var<storage, read> w_nibbles: array<vec4<u32>>;
var<storage, read> w_scales: array<u32>; // d and m

fn w_bytes(g: u32) -> Bytes {
    return nibble_bytes(w_nibbles[g]);
}

fn w_pairs(g: u32) -> Pairs {
    return nibble_pairs(w_nibbles[g]);
}

fn w_affine(g: u32) -> vec4<f32> {
    return unpack2x16float(w_scales[g]).xxyy;
}
