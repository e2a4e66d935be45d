// The rounded output is the output itself.

fn epilogue_load(row: u32, rows: u32) {}

// A value of the output, by one invocation.
fn epilogue_sum(k: u32, row: u32, column: u32, i: Invocation, v: f32) {
    kept[kept_place(row, column, i)] = v;
}

// The word at which the group of a row of the vector that begins at value `value` starts, and which half the row is in.
fn rounded_place(value: u32, row: u32) -> vec2<u32> {
    let half = (value + row) / 16u;
    return vec2<u32>(GROUP_WORDS * (half / 2u), half & 1u);
}

fn epilogue_half(value: u32, row: u32, h: u32) {}
