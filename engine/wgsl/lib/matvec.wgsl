// The frame of the matrix-vector products. A team takes ROWS rows and one vector, or one row and COLUMNS vectors: up to
// four sums, which are in a vec4 (some compilers keep arrays that a loop indexes in memory). The teams of a workgroup
// take consecutive rows, and each lane takes every LANES-th group; the input, which all of them share, is staged in
// workgroup memory, at most TILE groups of each vector at a time, or read by each lane from memory.

var<storage, read_write> y: array<f32>;  // the output, whose vectors are Y_STRIDE apart

var<private> before: vec4<f32>; // the previous output, in the order of the team's sums; zeros if it was not loaded

const SUMS = ROWS * COLUMNS; // of a team

// The row and the column of sum k of a team whose first row is `row`.
fn row_of(row: u32, k: u32) -> u32 {
    return select(row + k, row, COLUMNS > 1u);
}

fn column_of(k: u32) -> u32 {
    return select(0u, k, COLUMNS > 1u);
}

// The factor of each sum's column that the input does not include.
fn column_factors(team: Team) -> vec4<f32> {
    var factors = vec4<f32>(column_factor(0u, team));
    if COLUMNS > 1u { factors.y = column_factor(1u, team); }
    if COLUMNS > 2u { factors.z = column_factor(2u, team); }
    if COLUMNS > 3u { factors.w = column_factor(3u, team); }
    return factors;
}

fn value_before(start: u32, row: u32, rows: u32, k: u32) -> f32 {
    return y[start + column_of(k) * Y_STRIDE + min(row_of(row, k), rows - 1u)];
}

// Loads the previous output for a team that adds to it. Called before the team's product, during which the values
// arrive. `row` is the team's first row of `rows`, and the first vector begins at value `start`.
fn load_before(start: u32, row: u32, rows: u32) {
    before.x = value_before(start, row, rows, 0u);
    if SUMS > 1u { before.y = value_before(start, row, rows, 1u); }
    if SUMS > 2u { before.z = value_before(start, row, rows, 2u); }
    if SUMS > 3u { before.w = value_before(start, row, rows, 3u); }
}

// The sums over the lanes of a team times the factors of the input, in every lane.
fn finished(sums: vec4<f32>, factors: vec4<f32>, team: Team) -> vec4<f32> {
    return factors * team_sums(sums, team);
}

// Writes the sums of a team with the kernel's `write_sum(i, k, row, column, v)`. k is a constant in each call.
fn write_sums(i: Invocation, team: Team, row: u32, sums: vec4<f32>) {
    if team.lane == 0u {
        write_sum(i, 0u, row, 0u, sums.x);
        if SUMS > 1u { write_sum(i, 1u, row_of(row, 1u), column_of(1u), sums.y); }
        if SUMS > 2u { write_sum(i, 2u, row_of(row, 2u), column_of(2u), sums.z); }
        if SUMS > 3u { write_sum(i, 3u, row_of(row, 3u), column_of(3u), sums.w); }
    }
}
