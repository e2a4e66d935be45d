// The input of a product as the step before left it: rounded to bytes, and times the weights of a norm where it is
// NORMED. There is nothing to stage:
// all groups are one tile.

var<storage, read> rounded_input: array<vec4<u32>>; // a group: bytes, bytes, scales and sums; behind the groups, their squares

var<private> input_start: u32; // the first group

fn stage(start: u32, first: u32, count: u32, i: Invocation) {
    input_start = start / 8u;
    workgroupBarrier(); // as those who stage
}

fn staged_group(g: u32) -> Group {
    let at = 3u * input_group(input_start, g);
    let scales = bitcast<vec4<f32>>(rounded_input[at + 2u]);
    return Group(rounded_input[at], rounded_input[at + 1u], scales.xy, scales.zw);
}

// What is left out of a normed input: 1 / sqrt(mean(x²) + EPSILON).
fn input_factor(team: Team) -> f32 {
    if !NORMED {
        return 1.0;
    }
    var squares = vec4<f32>(0.0); // of half a group each
    for (var k = team.lane; k < (TILE + 1u) / 2u; k += LANES) {
        squares += bitcast<vec4<f32>>(rounded_input[3u * TILE + k]);
    }
    return inverseSqrt(team_sum(dot(squares, vec4<f32>(1.0)), team) / f32(WIDTH) + EPSILON);
}
