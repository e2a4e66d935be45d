// Rows of a pair of matrices, gate and up, of w_gate_ROWS rows of w_gate_GROUPS groups each.

// Group g of a row, gate and up. Rows past the last repeat it, so that no load leaves the matrix.
fn w_gated_dot(matrix: u32, row: u32, g: u32, a: ptr<function, Group>) -> vec2<f32> {
    let place = (matrix * w_gate_ROWS + min(row, w_gate_ROWS - 1u)) * w_gate_GROUPS + g;
    return vec2<f32>(w_gate_dot(place, a), w_up_dot(place, a));
}

// The same with staged group `staged` of a column. Compilers load the weights once for all columns.
fn w_gated_column(matrix: u32, row: u32, g: u32, column: u32, staged: u32) -> vec2<f32> {
    var a = staged_group(column, staged);
    return w_gated_dot(matrix, row, g, &a);
}

// As w_rows, for both matrices: a lane reads the staged input once.
fn w_gated_rows(matrix: u32, row: u32, first: u32, count: u32, team: Team) -> Gated {
    var x = vec2<f32>(0.0);
    var y = vec2<f32>(0.0);
    var z = vec2<f32>(0.0);
    var w = vec2<f32>(0.0);
    for (var g = team.lane; g < count; g += LANES) {
        var a = staged_group(0u, g);
        x += w_gated_dot(matrix, row, first + g, &a);
        if ROWS > 1u { y += w_gated_dot(matrix, row + 1u, first + g, &a); }
        if ROWS > 2u { z += w_gated_dot(matrix, row + 2u, first + g, &a); }
        if ROWS > 3u { w += w_gated_dot(matrix, row + 3u, first + g, &a); }
        if w_gate_COLUMNS > 1u { y += w_gated_column(matrix, row, first + g, 1u, g); }
        if w_gate_COLUMNS > 2u { z += w_gated_column(matrix, row, first + g, 2u, g); }
        if w_gate_COLUMNS > 3u { w += w_gated_column(matrix, row, first + g, 3u, g); }
    }
    return Gated(vec4<f32>(x.x, y.x, z.x, w.x), vec4<f32>(x.y, y.y, z.y, w.y));
}
