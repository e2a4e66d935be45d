// Activations as a lane of a matvec holds them: a group of 32 values, in registers, shared by all the
// rows the lane works on. Here they are rounded to signed bytes with one scale, for adapters that multiply
// four bytes at a time. The values themselves stay for the formats that are not bytes.

struct Group {
    raw: array<vec4<f32>, 8>,
    words: array<u32, 8>, // the bytes, four to a word, in order
    scale: f32,           // of the bytes
    low: f32,             // sum of the rounded values 0..15
    high: f32,            // sum of the rounded values 16..31
}

fn group_of(values: array<vec4<f32>, 8>) -> Group {
    var g: Group;
    g.raw = values;
    var largest = vec4<f32>(0.0);
    for (var k = 0u; k < 8u; k++) {
        largest = max(largest, abs(g.raw[k]));
    }
    let top = max(max(largest.x, largest.y), max(largest.z, largest.w));
    g.scale = top / 127.0;
    let inverse = select(0.0, 127.0 / top, top > 0.0);
    var low = 0;
    var high = 0;
    for (var k = 0u; k < 4u; k++) {
        g.words[k] = pack4xI8(vec4<i32>(round(g.raw[k] * inverse)));
        g.words[k + 4u] = pack4xI8(vec4<i32>(round(g.raw[k + 4u] * inverse)));
        low += dot4I8Packed(g.words[k], 0x01010101u);
        high += dot4I8Packed(g.words[k + 4u], 0x01010101u);
    }
    g.low = g.scale * f32(low);
    g.high = g.scale * f32(high);
    return g;
}
