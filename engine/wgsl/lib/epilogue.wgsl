// A product writes only its output.

fn epilogue_load(row: u32, rows: u32) {}

fn epilogue_sum(k: u32, row: u32, column: u32, i: Invocation, v: f32) {}

fn epilogue(start: u32, pitch: u32, columns: u32, rows: u32, i: Invocation) {}
