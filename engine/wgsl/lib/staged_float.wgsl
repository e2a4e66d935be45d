// The input of a product in workgroup memory, in f32. A group is divided into eight planes, so that neighbouring lanes,
// which read neighbouring groups, read neighbouring vec4s.

var<workgroup> staged_values: array<vec4<f32>, 8u * STAGED>; // [plane][group]
var<workgroup> staged_sums: array<f32, 2u * STAGED>;         // [half][group]

// Stages half a group: half h counts both halves of every group.
fn stage_half(h: u32, v: array<vec4<f32>, 4>) {
    let g = h >> 1u;
    let half = h & 1u;
    let place = 4u * half * STAGED + g;
    staged_values[place] = v[0];
    staged_values[place + STAGED] = v[1];
    staged_values[place + 2u * STAGED] = v[2];
    staged_values[place + 3u * STAGED] = v[3];
    staged_sums[half * STAGED + g] = dot(v[0] + v[1] + v[2] + v[3], vec4<f32>(1.0));
}

fn staged_group(column: u32, group: u32) -> Group {
    let g = column * TILE + group;
    var out: Group;
    for (var k = 0u; k < 8u; k++) {
        out.raw[k] = staged_values[k * STAGED + g];
    }
    out.sums = vec2<f32>(staged_sums[g], staged_sums[STAGED + g]);
    return out;
}
