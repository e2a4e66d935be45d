// A normed input that lanes read from memory, each its own groups: for products of so few rows that staging it costs
// more than it saves. All groups are one tile.

var<storage, read> x: array<vec4<f32>>;
var<storage, read> norm: array<vec4<f32>>;

var<private> squares: f32; // of the values this lane read

fn stage(start: u32, first: u32, count: u32, i: Invocation) {
    workgroupBarrier(); // as those who stage
}

fn staged_group(g: u32) -> Group {
    var out: Group;
    var sums = array<vec4<f32>, 2>();
    for (var k = 0u; k < 8u; k++) {
        let v = x[8u * g + k];
        squares += dot(v, v);
        out.raw[k] = v * norm[8u * g + k];
        out.scaled[k] = out.raw[k] * BYTE_WEIGHTS;
        sums[k / 4u] += out.raw[k];
    }
    out.sums = vec2<f32>(dot(sums[0], vec4<f32>(1.0)), dot(sums[1], vec4<f32>(1.0)));
    return out;
}

fn input_factor(team: Team) -> f32 {
    return inverseSqrt(team_sum(squares, team) / f32(WIDTH) + EPSILON);
}
