// Activations as a lane of a matvec holds them: a group of 32 values, in registers, shared by all the
// rows the lane works on. `scaled` serves the formats of bytes: where a byte is masked out of a word
// but not shifted down, the activation carries the missing power of two.

struct Group {
    raw: array<vec4<f32>, 8>,
    scaled: array<vec4<f32>, 8>,
    low: f32,  // sum of values 0..15
    high: f32, // sum of values 16..31
}

const BYTE_WEIGHTS = vec4<f32>(1.0, 0x1p-8, 0x1p-16, 0x1p-24);

fn group_of(values: array<vec4<f32>, 8>) -> Group {
    var g: Group;
    g.raw = values;
    for (var k = 0u; k < 8u; k++) {
        g.scaled[k] = g.raw[k] * BYTE_WEIGHTS;
    }
    let low = g.raw[0] + g.raw[1] + g.raw[2] + g.raw[3];
    let high = g.raw[4] + g.raw[5] + g.raw[6] + g.raw[7];
    g.low = dot(low, vec4<f32>(1.0));
    g.high = dot(high, vec4<f32>(1.0));
    return g;
}

// The four bytes of a word, each times 256 to the power of its place.
fn bytes_in_place(word: u32) -> vec4<f32> {
    return vec4<f32>(vec4<u32>(word) & vec4<u32>(0xffu, 0xff00u, 0xff0000u, 0xff000000u));
}
