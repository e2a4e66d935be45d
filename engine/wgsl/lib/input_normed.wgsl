// The input of a product through a root mean square norm: x · norm / sqrt(mean(x²) + EPSILON). The denominator is known
// only after all of x was read, so the finished product is divided by it.

var<storage, read> x: array<vec4<f32>>;
var<storage, read> norm: array<vec4<f32>>;

var<private> squares: vec4<f32>; // of the values this invocation staged, of each column
var<workgroup> square_sums: array<atomic<u32>, COLUMNS * WORKGROUP>; // bits of f32

fn input(column: u32, start: u32, at: u32) -> vec4<f32> {
    let v = x[start + at];
    squares[column] += dot(v, v); // column is a constant: with a variable index, this would be in memory
    return v * norm[at];
}

fn input_staged(local: u32) {
    atomicStore(&square_sums[local], bitcast<u32>(squares.x));
    if COLUMNS > 1u { atomicStore(&square_sums[WORKGROUP + local], bitcast<u32>(squares.y)); }
    if COLUMNS > 2u { atomicStore(&square_sums[2u * WORKGROUP + local], bitcast<u32>(squares.z)); }
    if COLUMNS > 3u { atomicStore(&square_sums[3u * WORKGROUP + local], bitcast<u32>(squares.w)); }
}

fn column_factor(column: u32, team: Team) -> f32 {
    var sum = 0.0;
    for (var i = team.lane; i < WORKGROUP; i += LANES) {
        sum += bitcast<f32>(atomicLoad(&square_sums[column * WORKGROUP + i]));
    }
    return inverseSqrt(team_sum(sum, team) / f32(WIDTH) + EPSILON);
}
