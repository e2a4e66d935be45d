// Activations in f32.

// A group as a lane holds it in registers, for all the rows it works on. `scaled` serves the formats of
// bytes: where a byte is masked out of a word but not shifted down, the activation carries the missing power
// of two.
struct Group {
    raw: array<vec4<f32>, 8>,
    scaled: array<vec4<f32>, 8>,
    sums: vec2<f32>, // of values 0..15 and of values 16..31
}

const BYTE_WEIGHTS = vec4<f32>(1.0, 0x1p-8, 0x1p-16, 0x1p-24);

// The four bytes of a word, each times 256 to the power of its place.
fn bytes_in_place(word: u32) -> vec4<f32> {
    return vec4<f32>(vec4<u32>(word) & vec4<u32>(0xffu, 0xff00u, 0xff0000u, 0xff000000u));
}
