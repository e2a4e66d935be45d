// F32: 128 bytes a group.

var<storage, read> w_values: array<vec4<f32>>;

fn w_decode(g: u32) -> array<vec4<f32>, 8> {
    var out: array<vec4<f32>, 8>;
    for (var k = 0u; k < 8u; k++) {
        out[k] = w_values[8u * g + k];
    }
    return out;
}
