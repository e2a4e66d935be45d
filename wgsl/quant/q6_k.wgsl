// Q6_K: d · s · (q − 32), a signed s for 16 values, d for 256.

const w_zero = 0u;
var<storage, read> w_nibbles: array<vec4<u32>>;
var<storage, read> w_crumbs: array<vec2<u32>>;
var<storage, read> w_scales: array<vec4<u32>>; // 16 signed bytes a superblock
var<storage, read> w_supers: array<u32>;       // two d a word

fn w_bytes(g: u32) -> array<u32, 8> {
    var words = nibble_words(w_nibbles[g]);
    var crumbs = crumb_words(w_crumbs[g]);
    for (var k = 0u; k < 8u; k++) {
        words[k] |= crumbs[k] << 4u;
    }
    return words;
}

fn w_affine(g: u32) -> vec4<f32> {
    let scales = w_scales[g >> 3u];
    let at = 2u * (g & 7u);
    let d = half_of(w_supers[g >> 4u], g >> 3u);
    let s = d * vec2<f32>(f32(signed_byte_of(scales, at)), f32(signed_byte_of(scales, at + 1u)));
    return vec4<f32>(s, -32.0 * s);
}
