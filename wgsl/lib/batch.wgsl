// The batch that a step computes: rows, each a token of a sequence. The host writes it before each step; everything else
// that kernels read is fixed when the plan is built. Kernels know by this alone how many rows there are, so plans with
// room for more or fewer share them; rows past `count` may hold anything. With ONE_ROW a kernel is compiled for a row
// alone.

struct Row {
    token: u32,      // its id, or where the GPU has left it: see lib/row_token.wgsl
    next: u32,       // the same of the token that follows it in its sequence
    position: u32,   // of the token in its sequence, from 0
    sequence: u32,   // the place of its sequence among those that are sampled for: see lib/sampling.wgsl
    result: u32,     // the place in `sampled` of what is sampled after this row: see op/sample.wgsl
    first_page: u32, // where in `pages` the list of its sequence's pages begins: see lib/kv_pages.wgsl
    first_adjustment: u32, // where in `adjustments` those of its logits begin, and how many they are: see
    adjustments: u32,      // op/adjust.wgsl
    rotations: array<vec2<f32>, PAIRS>, // cosine and sine of the position's rotary angles
}

struct Batch {
    count: u32,      // rows
    longest: u32,    // KV rows that the row with the most of them attends to
    splits: u32,     // into how many attention divides these
    submission: u32, // the host's number for this submission, a copy of which comes back beside the results
    rows: array<Row>,
}

var<storage, read> batch: Batch;

fn row_count() -> u32 {
    if ONE_ROW {
        return 1u;
    }
    return batch.count;
}

// KV rows that a row attends to: those of the tokens before it in its sequence, and its own, which is the last.
fn attended_by(row: u32) -> u32 {
    if ONE_ROW {
        return batch.longest;
    }
    return batch.rows[row].position + 1u;
}

// The list of a row alone is the only one there is.
fn first_page_of(row: u32) -> u32 {
    if ONE_ROW {
        return 0u;
    }
    return batch.rows[row].first_page;
}
