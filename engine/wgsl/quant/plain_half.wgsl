// Values of a plain format as f16, for products of matrices.

// The raw data of group g: its values as f16, times WEIGHT_UNIT, two to a word: 0, 2 and 1, 3 of every four. Values
// beyond 4094, which models do not have, become infinite.
fn w_raw(g: u32) -> array<vec4<u32>, 4> {
    let values = w_decode(g);
    return array<vec4<u32>, 4>(
        w_packed(values[0], values[1]), w_packed(values[2], values[3]), w_packed(values[4], values[5]),
        w_packed(values[6], values[7]),
    );
}

fn w_packed(first: vec4<f32>, second: vec4<f32>) -> vec4<u32> {
    let a = WEIGHT_UNIT * first;
    let b = WEIGHT_UNIT * second;
    return vec4<u32>(pack2x16float(a.xz), pack2x16float(a.yw), pack2x16float(b.xz), pack2x16float(b.yw));
}

fn w_halves(raw: array<vec4<u32>, 4>) -> array<vec4<f16>, 8> {
    return array<vec4<f16>, 8>(
        w_unpacked(raw[0].xy), w_unpacked(raw[0].zw), w_unpacked(raw[1].xy), w_unpacked(raw[1].zw),
        w_unpacked(raw[2].xy), w_unpacked(raw[2].zw), w_unpacked(raw[3].xy), w_unpacked(raw[3].zw),
    );
}

fn w_unpacked(words: vec2<u32>) -> vec4<f16> {
    return vec4<f16>(halves_of(words.x), halves_of(words.y));
}
