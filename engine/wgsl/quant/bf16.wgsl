// BF16: 64 bytes a group, two values to a word, each the upper half of an f32.

var<storage, read> w_values: array<vec4<u32>>;

fn w_pair(v: u32) -> vec2<f32> {
    return vec2<f32>(bitcast<f32>(v << 16u), bitcast<f32>(v & 0xffff0000u));
}

fn w_decode(g: u32) -> array<vec4<f32>, 8> {
    var out: array<vec4<f32>, 8>;
    for (var k = 0u; k < 4u; k++) {
        let v = w_values[4u * g + k];
        out[2u * k] = vec4<f32>(w_pair(v.x), w_pair(v.y));
        out[2u * k + 1u] = vec4<f32>(w_pair(v.z), w_pair(v.w));
    }
    return out;
}
