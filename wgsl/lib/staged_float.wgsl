// The input of a product in workgroup memory, in f32. A group lies in eight planes, so that neighbouring
// lanes, which read neighbouring groups, read neighbouring vec4s.

// A group as a lane holds it in registers, for all the rows it works on. `scaled` serves the formats of
// bytes: where a byte is masked out of a word but not shifted down, the activation carries the missing power
// of two.
struct Group {
    raw: array<vec4<f32>, 8>,
    scaled: array<vec4<f32>, 8>,
    sums: vec2<f32>, // of values 0..15 and of values 16..31
}

const BYTE_WEIGHTS = vec4<f32>(1.0, 0x1p-8, 0x1p-16, 0x1p-24);

var<workgroup> staged_values: array<vec4<f32>, 8u * TILE>; // [plane][group]
var<workgroup> staged_sums: array<f32, 2u * TILE>;         // [half][group]

// Stages half a group: half h counts both halves of every group.
fn stage_half(h: u32, v: ptr<function, array<vec4<f32>, 4>>) {
    let g = h >> 1u;
    let half = h & 1u;
    for (var k = 0u; k < 4u; k++) {
        staged_values[(4u * half + k) * TILE + g] = (*v)[k];
    }
    staged_sums[half * TILE + g] = dot((*v)[0] + (*v)[1] + (*v)[2] + (*v)[3], vec4<f32>(1.0));
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

// The four bytes of a word, each times 256 to the power of its place.
fn bytes_in_place(word: u32) -> vec4<f32> {
    return vec4<f32>(vec4<u32>(word) & vec4<u32>(0xffu, 0xff00u, 0xff0000u, 0xff000000u));
}
