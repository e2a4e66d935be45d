// Attention of many rows over the keys and values of a segment of the KV rows, which are side by side in the place of
// the cache. A part of the work is a head, and rows are those of the batch.
//
// The output of rows covers the segments so far. Stored beside it are the score that its weights are relative to, and
// their sum: the next segment's step continues from there. So the memory of a batch does not grow with the cache.

const KEY_FOURS = KEY / 4u;     // chunks of four of a key
const VALUE_FOURS = VALUE / 4u; // and of a value
const VALUE_FROM = KEY / 4u;    // chunk of a KV row where its value begins
const RESUMES = true;           // whether rows continue from the results of an earlier step

var<storage, read> q: array<vec4<f32>>;
var<storage, read> rotated: array<vec4<f32>>; // the rotary parts of the queries
var<storage, read_write> y: array<vec4<f32>>;
var<storage, read_write> stats: array<vec2<f32>>; // [row][head]

struct Split {
    start: u32, // first KV row
    end: u32,   // one past the last
}

// The number of rows.
fn live_rows() -> u32 {
    return row_count();
}

// The number of KV rows that a row attends to. Rows past the last attend to the same as the last.
fn seen_by(row: u32) -> u32 {
    return attended_by(min(row, row_count() - 1u));
}

fn query_chunk(row: u32, head: u32, chunk: u32) -> vec4<f32> {
    if chunk < NOPE / 4u {
        return q[row * Q_PITCH + head * Q_STRIDE + chunk];
    }
    return rotated[row * ROTATED_PITCH + head * ROTATED_STRIDE + chunk - NOPE / 4u];
}

// The part of the KV rows that a workgroup computes: the segment.
fn part_of(workgroup: vec3<u32>, first_row: u32) -> Split {
    return Split(workgroup.z * SEGMENT, (workgroup.z + 1u) * SEGMENT);
}

// Where to look up a head's tiles: its first.
fn tiles_of(head: u32, first_row: u32) -> u32 {
    return head * SEGMENT;
}

// The index of a tile; of the last KV row if the tile is past the end.
fn tile_place(tiles: u32, tile: u32, end: u32) -> u32 {
    return tiles + min(tile, end - 1u) % SEGMENT;
}

// The results of earlier segments: the sums of weighted values, and the score that weights are relative to with the sum
// of weights.
fn left_chunk(row: u32, head: u32, chunk: u32) -> vec4<f32> {
    return y[row * Y_PITCH + head * Y_STRIDE + chunk] * left_stats(row, head).y;
}

fn left_stats(row: u32, head: u32) -> vec2<f32> {
    return stats[row * HEADS + head];
}

fn leave_chunk(row: u32, head: u32, chunk: u32, sum: vec4<f32>, total: f32) {
    y[row * Y_PITCH + head * Y_STRIDE + chunk] = sum / total;
}

fn leave_stats(row: u32, head: u32, top: f32, total: f32) {
    stats[row * HEADS + head] = vec2<f32>(top, total);
}
