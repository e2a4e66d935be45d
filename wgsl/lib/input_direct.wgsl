// A normed input that lanes read from memory, each its own groups: for products of so few rows that staging it costs
// more than it saves. All groups are one tile.

var<storage, read> x: array<vec4<f32>>;
var<storage, read> norm: array<vec4<f32>>;

var<private> input_start: u32;
var<private> squares: vec4<f32>; // of the values this lane read, of each column

fn stage(start: u32, columns: u32, first: u32, count: u32, i: Invocation) {
    input_start = start;
    workgroupBarrier(); // as those who stage
}

// Vec4 k of a group that starts at vec4 `start`, without what is common to all values of the column.
fn input(column: u32, start: u32, g: u32, k: u32) -> vec4<f32> {
    let v = x[start + k];
    squares[column] += dot(v, v); // column is a constant, as in lib/input_normed.wgsl
    return v * norm[8u * g + k];
}

fn staged_group(column: u32, g: u32) -> Group {
    let start = input_start + column * X_STRIDE + 8u * g;
    let v0 = input(column, start, g, 0u);
    let v1 = input(column, start, g, 1u);
    let v2 = input(column, start, g, 2u);
    let v3 = input(column, start, g, 3u);
    let v4 = input(column, start, g, 4u);
    let v5 = input(column, start, g, 5u);
    let v6 = input(column, start, g, 6u);
    let v7 = input(column, start, g, 7u);
    let scaled = array<vec4<f32>, 8>(
        v0 * BYTE_WEIGHTS, v1 * BYTE_WEIGHTS, v2 * BYTE_WEIGHTS, v3 * BYTE_WEIGHTS,
        v4 * BYTE_WEIGHTS, v5 * BYTE_WEIGHTS, v6 * BYTE_WEIGHTS, v7 * BYTE_WEIGHTS,
    );
    let ones = vec4<f32>(1.0);
    let sums = vec2<f32>(dot(v0 + v1 + v2 + v3, ones), dot(v4 + v5 + v6 + v7, ones));
    return Group(array<vec4<f32>, 8>(v0, v1, v2, v3, v4, v5, v6, v7), scaled, sums);
}

fn column_factor(column: u32, team: Team) -> f32 {
    return inverseSqrt(team_sum(squares[column], team) / f32(WIDTH) + EPSILON);
}
