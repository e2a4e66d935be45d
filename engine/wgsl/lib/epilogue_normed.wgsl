// The rounded output is the output times the weights of the following norm. The kernel that reads it divides by the
// norm's root: the sums of squares, one for each half group, are OUTPUT_SQUARES words after the start of a vector's
// groups. The next vector starts OUTPUT_PITCH words after this one.

var<storage, read> next_norm: array<f32>;

var<workgroup> kept_squares: array<f32, COLUMNS * KEPT_ROWS>;

var<private> norms: vec4<f32>; // in the order of the team's sums

// Called by a team before its product, during which the weights arrive.
fn epilogue_load(row: u32, rows: u32) {
    norms = vec4<f32>(next_norm[min(row, rows - 1u)]);
    if ROWS > 1u { norms.y = next_norm[min(row + 1u, rows - 1u)]; }
    if ROWS > 2u { norms.z = next_norm[min(row + 2u, rows - 1u)]; }
    if ROWS > 3u { norms.w = next_norm[min(row + 3u, rows - 1u)]; }
}

// A value of the output, sum k of its team, by one invocation.
fn epilogue_sum(k: u32, row: u32, column: u32, i: Invocation, v: f32) {
    let at = kept_place(row, column, i);
    kept[at] = v * norms[k];
    kept_squares[at] = v * v;
}

// The word at which the group of a row of the vector that begins at value `value` starts, and which half the row is in.
fn rounded_place(value: u32, row: u32) -> vec2<u32> {
    return vec2<u32>(value / Y_STRIDE * OUTPUT_PITCH + GROUP_WORDS * (row / 32u), row / 16u & 1u);
}

// Half h of the workgroup's halves, which begins at row `row` of the vector that begins at value `value`.
fn epilogue_half(value: u32, row: u32, h: u32) {
    var squares = 0.0;
    for (var k = 0u; k < 16u; k++) {
        squares += kept_squares[16u * h + k];
    }
    let at = value / Y_STRIDE * OUTPUT_PITCH + OUTPUT_SQUARES + row / 16u;
    rounded_output[at] = bitcast<u32>(squares);
}
