// The input of a product in workgroup memory, rounded to bytes.

var<workgroup> staged_words: array<vec4<u32>, 2u * STAGED>;  // [half][group]
var<workgroup> staged_scales: array<vec2<f32>, 2u * STAGED>; // scale and sum of [group][half]

// Stages half a group: half h counts both halves of every group.
fn stage_half(h: u32, v: array<vec4<f32>, 4>) {
    let g = h >> 1u;
    let half = h & 1u;
    let left = rounded_half(v);
    staged_words[half * STAGED + g] = left.words;
    staged_scales[h] = vec2<f32>(left.scale, left.sum);
}

fn staged_group(column: u32, group: u32) -> Group {
    let g = column * TILE + group;
    let first = staged_scales[2u * g];
    let second = staged_scales[2u * g + 1u];
    return Group(staged_words[g], staged_words[STAGED + g], vec2(first.x, second.x), vec2(first.y, second.y));
}
