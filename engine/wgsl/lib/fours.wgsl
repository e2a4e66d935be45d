// Grids whose entries are four bytes (src/quant/grids.rs), for all weights of a shader.

var<storage, read> fours: array<u32>;

// The bytes of eight entries.
fn eight_fours(low: vec4<u32>, high: vec4<u32>) -> Bytes {
    return Bytes(
        vec4<u32>(fours[low.x], fours[low.y], fours[low.z], fours[low.w]),
        vec4<u32>(fours[high.x], fours[high.y], fours[high.z], fours[high.w]),
    );
}
