// Values of a plain format as f16, for products of matrices.

// What is read of group g: its values as f16, times WEIGHT_UNIT, two to a word: 0, 2 and 1, 3 of every four. Values
// beyond 4094, of which models have none, are cut rather than made infinite.
fn w_raw(g: u32) -> array<vec4<u32>, 4> {
    var values = w_decode(g);
    var out: array<vec4<u32>, 4>;
    for (var k = 0u; k < 4u; k++) {
        let a = clamp(WEIGHT_UNIT * values[2u * k], vec4<f32>(-65504.0), vec4<f32>(65504.0));
        let b = clamp(WEIGHT_UNIT * values[2u * k + 1u], vec4<f32>(-65504.0), vec4<f32>(65504.0));
        out[k] = vec4<u32>(pack2x16float(a.xz), pack2x16float(a.yw), pack2x16float(b.xz), pack2x16float(b.yw));
    }
    return out;
}

fn w_halves(raw: array<vec4<u32>, 4>) -> array<vec4<f16>, 8> {
    var out: array<vec4<f16>, 8>;
    for (var k = 0u; k < 4u; k++) {
        out[2u * k] = vec4<f16>(halves_of(raw[k].x), halves_of(raw[k].y));
        out[2u * k + 1u] = vec4<f16>(halves_of(raw[k].z), halves_of(raw[k].w));
    }
    return out;
}
