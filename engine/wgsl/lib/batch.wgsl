// The batch that a step computes: rows, each a token of a sequence. The host writes it before each step; everything
// else that kernels read is fixed when the plan is built. Kernels take the number of rows only from here, so plans of
// different capacities share them; rows past `count` may hold anything. With ONE_ROW, a kernel is compiled for a single
// row.

struct Row {
    token: u32,      // its id, or where the GPU has written it: see lib/row_token.wgsl
    next: u32,       // the same for the next token in its sequence
    position: u32,   // of the token in its sequence, from 0
    sequence: u32,   // the index of its sequence: see lib/sampling.wgsl
    result: u32,     // the index in `sampled` of the token sampled after this row: see op/sample.wgsl
    first_page: u32, // the index in `pages` of its sequence's first page: see lib/kv_pages.wgsl
    first_adjustment: u32, // the index of its first adjustment in `adjustments`, and their number: see
    adjustments: u32,      // op/adjust.wgsl
    longest: u32,          // KV rows that the last row of its sequence attends to
    unused: u32,
    rotations: array<vec2<f32>, PAIRS>, // cosine and sine of the position's rotary angles
}

struct Batch {
    count: u32,      // rows
    longest: u32,    // KV rows that the row with the most of them attends to
    splits: u32,     // the number of splits into which attention divides the KV rows of a sequence
    submission: u32, // the number of this submission, which is copied back beside the results
    rows: array<Row>,
}

var<storage, read> batch: Batch;

fn row_count() -> u32 {
    if ONE_ROW {
        return 1u;
    }
    return batch.count;
}

// The number of KV rows that a row attends to: those of the tokens before it in its sequence, and its own, the last.
fn attended_by(row: u32) -> u32 {
    if ONE_ROW {
        return batch.longest;
    }
    return batch.rows[row].position + 1u;
}

// The number of KV rows that the last row of the same sequence attends to.
fn longest_of(row: u32) -> u32 {
    if ONE_ROW {
        return batch.longest;
    }
    return batch.rows[row].longest;
}

// A single row has the only list.
fn first_page_of(row: u32) -> u32 {
    if ONE_ROW {
        return 0u;
    }
    return batch.rows[row].first_page;
}
