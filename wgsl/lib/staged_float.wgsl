// The input of a product in workgroup memory, in f32. A group lies in eight planes, so that neighbouring
// lanes, which read neighbouring groups, read neighbouring vec4s.

var<workgroup> staged_values: array<vec4<f32>, 8u * TILE>; // [plane][group]
var<workgroup> staged_sums: array<f32, 2u * TILE>;         // [half][group]

// Stages half a group: half h counts both halves of every group.
fn stage_half(h: u32, v: array<vec4<f32>, 4>) {
    let g = h >> 1u;
    let half = h & 1u;
    let place = 4u * half * TILE + g;
    staged_values[place] = v[0];
    staged_values[place + TILE] = v[1];
    staged_values[place + 2u * TILE] = v[2];
    staged_values[place + 3u * TILE] = v[3];
    staged_sums[half * TILE + g] = dot(v[0] + v[1] + v[2] + v[3], vec4<f32>(1.0));
}

fn staged_group(g: u32) -> Group {
    var out: Group;
    for (var k = 0u; k < 8u; k++) {
        out.raw[k] = staged_values[k * TILE + g];
        out.scaled[k] = out.raw[k] * BYTE_WEIGHTS;
    }
    out.sums = vec2<f32>(staged_sums[g], staged_sums[TILE + g]);
    return out;
}
