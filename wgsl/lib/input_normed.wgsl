// The input of a product through a root mean square norm: x · norm / sqrt(mean(x²) + EPSILON). What is under
// the fraction bar is known only after all of x was seen: it is the factor of the finished product.

var<storage, read> x: array<vec4<f32>>;
var<storage, read> norm: array<vec4<f32>>;

var<private> squares: f32; // of the values this invocation staged
var<workgroup> square_sums: array<f32, WORKGROUP>;

fn input(at: u32) -> vec4<f32> {
    let v = x[at];
    squares += dot(v, v);
    return v * norm[at];
}

fn input_staged(local: u32) {
    square_sums[local] = squares;
}

fn input_factor(team: Team) -> f32 {
    var sum = 0.0;
    for (var i = team.lane; i < WORKGROUP; i += LANES) {
        sum += square_sums[i];
    }
    return inverseSqrt(team_sum(sum, team) / f32(WIDTH) + EPSILON);
}
