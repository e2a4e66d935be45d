// A product also writes its output rounded, for lib/input_rounded.wgsl. The rows of a workgroup are a multiple of 16,
// so that one workgroup computes each half of a group.

const KEPT_ROWS = TEAMS * ROWS;
const HALVES = KEPT_ROWS / 16u; // of a column

var<workgroup> kept: array<f32, COLUMNS * KEPT_ROWS>; // [column][row]

fn kept_place(row: u32, column: u32, i: Invocation) -> u32 {
    return column * KEPT_ROWS + row - first_row_of_all(i.workgroup);
}

fn kept_four(at: u32) -> vec4<f32> {
    return vec4<f32>(kept[at], kept[at + 1u], kept[at + 2u], kept[at + 3u]);
}

fn kept_half(h: u32) -> array<vec4<f32>, 4> {
    let at = 16u * h;
    return array<vec4<f32>, 4>(kept_four(at), kept_four(at + 4u), kept_four(at + 8u), kept_four(at + 12u));
}

// Called by the whole workgroup, whose output is part of the `rows` values of each of `columns` vectors: the first
// begins at value `start`, each further one `pitch` values later.
fn epilogue(start: u32, pitch: u32, columns: u32, rows: u32, i: Invocation) {
    workgroupBarrier();
    for (var h = i.local; h < HALVES * columns; h += WORKGROUP) {
        let row = first_row_of_all(i.workgroup) + 16u * (h % HALVES);
        if row < rows {
            let value = start + h / HALVES * pitch;
            let place = rounded_place(value, row);
            write_half(place.x, place.y, rounded_half(kept_half(h)));
            epilogue_half(value, row, h);
        }
    }
}
