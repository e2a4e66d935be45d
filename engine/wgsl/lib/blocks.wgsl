// Which rows a workgroup and each of its teams compute: consecutive blocks of them. Blocks past the limit of one grid
// dimension continue in the second.

const TEAMS = WORKGROUP / LANES;

// A workgroup's block of rows.
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
