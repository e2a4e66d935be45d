// Stages the input of a product in workgroup memory, where every team of the workgroup reads it. An input provides
//   input(column, start, at)  vec4 `at` of the vector of a column, which starts at vec4 `start`
//   input_staged(local)       called by every invocation once it has staged its share of a tile
//   column_factor(c, team)    the factor of all values of a column that `input` does not include
// and the arithmetic `stage_half` and `staged_group`.

const STAGED = COLUMNS * TILE; // groups, those of a column side by side

// Stages groups first..first + count, at most TILE, of `columns` vectors, the first of which starts at vec4 `start` of
// the input. Called by the whole workgroup, tile after tile. Earlier writes to workgroup memory are visible to all
// afterwards.
fn stage(start: u32, columns: u32, first: u32, count: u32, i: Invocation) {
    if first > 0u {
        workgroupBarrier(); // the previous tile was read
    }
    stage_column(0u, start, first, count, i);
    if COLUMNS > 1u && columns > 1u { stage_column(1u, start, first, count, i); }
    if COLUMNS > 2u && columns > 2u { stage_column(2u, start, first, count, i); }
    if COLUMNS > 3u && columns > 3u { stage_column(3u, start, first, count, i); }
    input_staged(i.local);
    workgroupBarrier();
}

fn stage_column(column: u32, start: u32, first: u32, count: u32, i: Invocation) {
    let vector = start + column * X_STRIDE;
    for (var h = i.local; h < 2u * count; h += WORKGROUP) {
        let at = 8u * first + 4u * h;
        let half = array<vec4<f32>, 4>(
            input(column, vector, at), input(column, vector, at + 1u),
            input(column, vector, at + 2u), input(column, vector, at + 3u),
        );
        stage_half(2u * column * TILE + h, half);
    }
}
