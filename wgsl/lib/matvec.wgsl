// The frame of the matrix-vector products. A team takes ROWS rows, 1 to 4, which stand in a vec4 (in arrays, where
// they are indexed by a loop, some compilers keep them in memory), the teams of a workgroup consecutive ones,
// and walks them a group a lane; the input, which all of them multiply with, is staged in workgroup memory, at
// most TILE groups at a time.

const TEAMS = WORKGROUP / LANES;

// Which block of rows is a workgroup's: those past the limit of one grid dimension continue in the second.
fn block_of(workgroup: vec3<u32>) -> u32 {
    return workgroup.y * GRID_WIDTH + workgroup.x;
}

// The first row of a workgroup.
fn first_row_of_all(workgroup: vec3<u32>) -> u32 {
    return block_of(workgroup) * TEAMS * ROWS;
}

// The first row of a team.
fn first_row(workgroup: vec3<u32>, team: Team) -> u32 {
    return first_row_of_all(workgroup) + team.index * ROWS;
}

// What the lanes of a team added up times the factor of the input, in every lane.
fn finished(sums: vec4<f32>, factor: f32, team: Team) -> vec4<f32> {
    return factor * team_sums(sums, team);
}

// Writes the rows of a team by the kernel's `write_row(i, row, k, v)`, k being a constant each time.
fn write_rows(i: Invocation, team: Team, row: u32, sums: vec4<f32>) {
    if team.lane == 0u {
        write_row(i, row, 0u, sums.x);
        if ROWS > 1u { write_row(i, row, 1u, sums.y); }
        if ROWS > 2u { write_row(i, row, 2u, sums.z); }
        if ROWS > 3u { write_row(i, row, 3u, sums.w); }
    }
}
