// The norm of vectors that the previous step wrote rounded, with the sums of squares of each half group after the
// groups.

// 1 / sqrt(mean(x²) + EPSILON) of a vector of `groups` groups, whose squares begin at `first`.
fn factor_of_squares(first: u32, groups: u32, team: Team) -> f32 {
    var squares = vec4<f32>(0.0); // of half a group each
    for (var k = team.lane; k < (groups + 1u) / 2u; k += LANES) {
        let some = bitcast<vec4<f32>>(rounded_input[first + k]);
        // After an odd group there may be values of other steps.
        squares += select(some, vec4<f32>(some.xy, 0.0, 0.0), groups % 2u == 1u && k == groups / 2u);
    }
    let both = squares.xy + squares.zw;
    return inverseSqrt(team_sum(both.x + both.y, team) / f32(WIDTH) + EPSILON);
}
