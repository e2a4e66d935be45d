// What attention of many rows is over: the latents, which are the keys of all heads, and their first RANK values the
// values. The queries of all heads, one row of the batch after another, are what is called rows. A part of the work is a
// split of the KV rows.

const KEY_FOURS = KV_ROW / 4u; // chunks of four of a key
const VALUE_FOURS = RANK / 4u; // and of a value
const VALUE_FROM = 0u;         // chunk of a KV row where its value begins
const RESUMES = false;         // whether rows go on from what an earlier step has left

var<storage, read> q: array<vec4<f32>>;

// How many rows there are.
fn live_rows() -> u32 {
    return row_count() * HEADS;
}

// KV rows that a row attends to. Rows past the last attend to what that one does.
fn seen_by(row: u32) -> u32 {
    return attended_by(min(row / HEADS, row_count() - 1u));
}

fn query_chunk(row: u32, part: u32, chunk: u32) -> vec4<f32> {
    return q[row * KEY_FOURS + chunk];
}

// The part of the KV rows that is a workgroup's.
fn part_of(workgroup: vec3<u32>) -> Split {
    return split_of(workgroup.y, batch.longest);
}

// What tells the places of a part's tiles: the list of pages, for all rows are of one sequence.
fn tiles_of(part: u32) -> u32 {
    return first_page_of(0u);
}

// What earlier steps have left: nothing.
fn left_chunk(row: u32, part: u32, chunk: u32) -> vec4<f32> {
    return vec4<f32>(0.0);
}

fn left_stats(row: u32, part: u32) -> vec2<f32> {
    return vec2<f32>(LOWEST, 0.0);
}
