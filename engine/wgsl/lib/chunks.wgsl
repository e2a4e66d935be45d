// Chunks of eight f16, which kernels that only copy them read as four words: 16 bytes at a time, whereas vectors of f16
// have at most 8.

// The first four values of a chunk, and the others.
fn first_of(chunk: vec4<u32>) -> vec4<f16> {
    return vec4<f16>(vec2<f16>(unpack2x16float(chunk.x)), vec2<f16>(unpack2x16float(chunk.y)));
}

fn second_of(chunk: vec4<u32>) -> vec4<f16> {
    return vec4<f16>(vec2<f16>(unpack2x16float(chunk.z)), vec2<f16>(unpack2x16float(chunk.w)));
}
