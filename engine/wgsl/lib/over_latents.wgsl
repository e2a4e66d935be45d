// Attention of many rows over the latents, which are the keys of all heads, and whose first RANK values are the values.
// A row here is a query: those of all heads, one row of the batch after another. A part of the work is a split of the
// KV rows.

const KEY_FOURS = KV_ROW / 4u; // chunks of four of a key
const VALUE_FOURS = RANK / 4u; // and of a value
const VALUE_FROM = 0u;         // chunk of a KV row where its value begins
const RESUMES = false;         // whether rows continue from the results of an earlier step

var<storage, read> q: array<vec4<f32>>;

// The number of rows.
fn live_rows() -> u32 {
    return row_count() * HEADS;
}

// The number of KV rows that a row attends to. Rows past the last attend to the same as the last.
fn seen_by(row: u32) -> u32 {
    return attended_by(min(row / HEADS, row_count() - 1u));
}

fn query_chunk(row: u32, part: u32, chunk: u32) -> vec4<f32> {
    return q[row * KEY_FOURS + chunk];
}

// The part of the KV rows that a workgroup computes, whose first row is `first_row`.
fn part_of(workgroup: vec3<u32>, first_row: u32) -> Split {
    let token = first_row / HEADS;
    return split_of(token, workgroup.y, longest_of(token));
}

// Where to look up a part's tiles: the list of pages of the sequence that all rows of the workgroup belong to.
fn tiles_of(part: u32, first_row: u32) -> u32 {
    return first_page_of(first_row / HEADS);
}

// The results of earlier steps: none.
fn left_chunk(row: u32, part: u32, chunk: u32) -> vec4<f32> {
    return vec4<f32>(0.0);
}

fn left_stats(row: u32, part: u32) -> vec2<f32> {
    return vec2<f32>(LOWEST, 0.0);
}
