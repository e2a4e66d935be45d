// The sums of up to four values over the team, in every lane.
fn team_sums(v: vec4<f32>, t: Team) -> vec4<f32> {
    var sums = vec4<f32>(team_sum(v.x, t), 0.0, 0.0, 0.0);
    if SUMS > 1u { sums.y = team_sum(v.y, t); }
    if SUMS > 2u { sums.z = team_sum(v.z, t); }
    if SUMS > 3u { sums.w = team_sum(v.w, t); }
    return sums;
}
