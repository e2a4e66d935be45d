// F16: 64 bytes a group, two values to a word.

var<storage, read> w_values: array<vec4<u32>>;

fn w_decode(g: u32) -> array<vec4<f32>, 8> {
    var out: array<vec4<f32>, 8>;
    for (var k = 0u; k < 4u; k++) {
        let v = w_values[4u * g + k];
        out[2u * k] = vec4<f32>(unpack2x16float(v.x), unpack2x16float(v.y));
        out[2u * k + 1u] = vec4<f32>(unpack2x16float(v.z), unpack2x16float(v.w));
    }
    return out;
}
