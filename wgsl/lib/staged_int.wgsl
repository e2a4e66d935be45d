// The input of a product in workgroup memory, rounded to signed bytes with one scale for 16 values: for
// adapters that multiply four bytes at a time.

// A group as a lane holds it in registers, for all the rows it works on.
struct Group {
    low: vec4<u32>,    // values 0..15, four to a word
    high: vec4<u32>,   // values 16..31
    scales: vec2<f32>, // of either half
    sums: vec2<f32>,   // of the rounded values of either half
}

const SMALLEST = 1e-30; // below this a half is all zeros: its inverse would not be finite

var<workgroup> staged_words: array<vec4<u32>, 2u * TILE>;  // [half][group]
var<workgroup> staged_scales: array<vec4<f32>, TILE>;      // scales and sums of the halves

// Stages half a group: half h counts both halves of every group.
fn stage_half(h: u32, v: ptr<function, array<vec4<f32>, 4>>) {
    let g = h >> 1u;
    let half = h & 1u;
    let largest = max(max(abs((*v)[0]), abs((*v)[1])), max(abs((*v)[2]), abs((*v)[3])));
    let top = max(max(largest.x, largest.y), max(largest.z, largest.w));
    let inverse = select(0.0, 127.0 / top, top > SMALLEST);
    let words = vec4<u32>(
        rounded((*v)[0] * inverse), rounded((*v)[1] * inverse), rounded((*v)[2] * inverse), rounded((*v)[3] * inverse),
    );
    staged_words[half * TILE + g] = words;
    // Neither a maximum nor a byte shows what is not a number; a sum does, and the scale passes it on.
    let total = dot(abs((*v)[0]) + abs((*v)[1]) + abs((*v)[2]) + abs((*v)[3]), vec4<f32>(1.0));
    let lost = (bitcast<u32>(total) & 0x7fffffffu) > 0x7f800000u;
    let scale = select(select(0.0, top / 127.0, top > SMALLEST), total, lost);
    staged_scales[g][half] = scale;
    staged_scales[g][half + 2u] = scale * f32(dot_bytes(words, vec4<u32>(0x01010101u)));
}

fn rounded(v: vec4<f32>) -> u32 {
    return pack4xI8(vec4<i32>(round(v)));
}

fn staged_group(g: u32) -> Group {
    let scales = staged_scales[g];
    return Group(staged_words[g], staged_words[TILE + g], scales.xy, scales.zw);
}

// Dot product of 16 signed bytes with 16 others.
fn dot_bytes(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w);
}
