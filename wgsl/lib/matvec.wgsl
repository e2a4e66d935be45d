// The frame of the matrix-vector products: a team takes ROWS rows at a time and walks them a group a lane.
// A kernel provides
//   rows_of(slot, row, team)  the values of rows row..row + ROWS, in every lane of the team
//   store(slot, row, value)   what becomes of one of them
// where the slot is the matrix of a stack, or the place of an expert among the chosen.

fn each_row(i: Invocation) {
    let team = team_of(i);
    let slot = i.workgroup.z;
    // Blocks of rows past the limit of one grid dimension continue in the second.
    let first = (i.workgroup.y * GRID_WIDTH + i.workgroup.x) * ROWS_PER_WORKGROUP;
    let end = min(first + ROWS_PER_WORKGROUP, params.rows);
    for (var row = first + team.index * ROWS; row < end; row += team.count * ROWS) {
        var values = rows_of(slot, row, team);
        if team.lane == 0u {
            for (var k = 0u; k < ROWS && row + k < end; k++) {
                store(slot, row + k, values[k]);
            }
        }
    }
}

// The activations of one group, from vec4 `at` of x on.
fn load_group(at: u32) -> Group {
    return group_of(array<vec4<f32>, 8>(
        x[at], x[at + 1u], x[at + 2u], x[at + 3u], x[at + 4u], x[at + 5u], x[at + 6u], x[at + 7u],
    ));
}
