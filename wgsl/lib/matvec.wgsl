// The frame of the matrix-vector products. A team takes ROWS rows, the teams of a workgroup consecutive ones,
// and walks them a group a lane; the input, which all of them multiply with, is staged in workgroup memory, at
// most TILE groups at a time.

const TEAMS = WORKGROUP / LANES;

// Which block of rows is a workgroup's: those past the limit of one grid dimension continue in the second.
fn block_of(workgroup: vec3<u32>) -> u32 {
    return workgroup.y * GRID_WIDTH + workgroup.x;
}

// The first row of a team.
fn first_row(workgroup: vec3<u32>, team: Team) -> u32 {
    return (block_of(workgroup) * TEAMS + team.index) * ROWS;
}

// What the lanes of a team added up, in every lane, the factor of the input included.
fn finished(sums: array<f32, ROWS>, team: Team) -> array<f32, ROWS> {
    let factor = input_factor(team);
    var out = sums;
    for (var k = 0u; k < ROWS; k++) {
        out[k] = factor * team_sum(out[k], team);
    }
    return out;
}
