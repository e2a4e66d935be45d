// The input of a product through a root mean square norm, as in lib/input_normed.wgsl, for lanes that read it from
// memory. The lanes of a team together read all of a vector, so a team sums the squares by itself.

var<storage, read> x: array<vec4<f32>>;
var<storage, read> norm: array<vec4<f32>>;

var<private> squares: vec4<f32>; // of the values this lane read, of each column

fn input(column: u32, start: u32, at: u32) -> vec4<f32> {
    let v = x[start + at];
    squares[column] += dot(v, v); // column is a constant, as in lib/input_normed.wgsl
    return v * norm[at];
}

fn column_factor(column: u32, team: Team) -> f32 {
    return inverseSqrt(team_sum(squares[column], team) / f32(WIDTH) + EPSILON);
}
