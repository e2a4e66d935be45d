// Rows of a matrix of w_ROWS rows of w_GROUPS groups, or of one of a stack of them.

const w_BLOCKS = (w_ROWS + TEAMS * ROWS - 1u) / (TEAMS * ROWS); // workgroups for all rows

// The index of a row's first group. Rows past the last repeat it, so that no load leaves the matrix.
fn w_place(matrix: u32, row: u32) -> u32 {
    return (matrix * w_ROWS + min(row, w_ROWS - 1u)) * w_GROUPS;
}

// Group `place` of the weights times staged group g of a column. Compilers load the weights once for all columns.
fn w_column_dot(column: u32, g: u32, place: u32) -> f32 {
    var a = staged_group(column, g);
    return w_dot(place, &a);
}

// This lane's share of the products of rows row..row + ROWS, or of one row with w_COLUMNS vectors, with the `count`
// staged groups, the first of which is group `first`.
fn w_rows(matrix: u32, row: u32, first: u32, count: u32, team: Team) -> vec4<f32> {
    var sums = vec4<f32>(0.0);
    for (var g = team.lane; g < count; g += LANES) {
        let place = w_place(matrix, row) + first + g;
        var a = staged_group(0u, g);
        sums.x += w_dot(place, &a);
        if ROWS > 1u { sums.y += w_dot(w_place(matrix, row + 1u) + first + g, &a); }
        if ROWS > 2u { sums.z += w_dot(w_place(matrix, row + 2u) + first + g, &a); }
        if ROWS > 3u { sums.w += w_dot(w_place(matrix, row + 3u) + first + g, &a); }
        if w_COLUMNS > 1u { sums.y += w_column_dot(1u, g, place); }
        if w_COLUMNS > 2u { sums.z += w_column_dot(2u, g, place); }
        if w_COLUMNS > 3u { sums.w += w_column_dot(3u, g, place); }
    }
    return sums;
}

// The team's sums: of its rows, beginning at `row`, times the vectors that start at vec4 `start` of the input.
fn w_product(matrix: u32, start: u32, row: u32, i: Invocation, team: Team) -> vec4<f32> {
    var sums = vec4<f32>(0.0);
    for (var first = 0u; first < w_GROUPS; first += TILE) {
        let count = min(TILE, w_GROUPS - first);
        stage(start, COLUMNS, first, count, i);
        sums += w_rows(matrix, row, first, count, team);
    }
    return finished(sums, column_factors(team), team);
}
