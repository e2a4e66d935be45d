// What is left rounded is the output times the weights of the norm that follows. The root that the norm divides by is
// left to the kernel that reads this: it finds the sums of squares, of half a group each, OUTPUT_SQUARES words behind
// the start of a vector's groups. The next vector starts OUTPUT_PITCH words behind this one.

var<storage, read> next_norm: array<f32>;

var<workgroup> kept_squares: array<f32, COLUMNS * KEPT_ROWS>;

var<private> norms: vec4<f32>; // in the places of the team's sums

// Called by a team before its product, which takes long enough for the weights to arrive.
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

// The word at which the group of a row starts, of the vector that begins at value `value`, and which half of it it is.
fn rounded_place(value: u32, row: u32) -> vec2<u32> {
    return vec2<u32>(value / Y_STRIDE * OUTPUT_PITCH + GROUP_WORDS * (row / 32u), row / 16u & 1u);
}

// Half h of those that the workgroup keeps, from row `row` on of the vector that begins at value `value`.
fn epilogue_half(value: u32, row: u32, h: u32) {
    var squares = 0.0;
    for (var k = 0u; k < 16u; k++) {
        squares += kept_squares[16u * h + k];
    }
    let at = value / Y_STRIDE * OUTPUT_PITCH + OUTPUT_SQUARES + row / 16u;
    rounded_output[at] = bitcast<u32>(squares);
}
