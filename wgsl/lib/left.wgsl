// A product leaves its output, and nothing besides.

fn foresee(row: u32, rows: u32) {}

fn keep(row: u32, k: u32, i: Invocation, v: f32) {}

fn leave(vector: u32, rows: u32, i: Invocation) {}
