// What attention of a chunk by matrices keeps in workgroup memory, and the matrices made of it. Two tiles of kv_rows: one
// is multiplied while the next one comes. Arrays are of vectors of four, and so are pitches.
//
// Matrices are loaded from multiples of 16 bytes. Nothing says where a driver lays these arrays: each is of so many
// bytes that the next is at such a place, whichever it is.

const ROWS = 64u;
const TILE = 16u;                                // KV rows
const CHUNKS = KV_ROW / 4u;                        // of a KV row
const PITCH = CHUNKS + 2u;                       // of a KV row in workgroup memory, so that rows fall on other banks
const SHARE = TILE * CHUNKS / WORKGROUP;         // chunks of a tile that an invocation loads
const KEY_STEPS = KV_ROW / 32u;                    // matrices of half a key
const VALUE_TILES = RANK / (16u * (WORKGROUP / 32u)); // matrices of a value that are a subgroup's
const QUERY_PITCH = CHUNKS / 2u;                 // of a query's every other matrix
const WEIGHT_PITCH = TILE / 4u + 2u;

var<storage, read> q: array<vec4<f32>>;

var<workgroup> kv_rows: array<vec4<f16>, 2u * TILE * PITCH>;
var<workgroup> partial: array<vec4<f32>, 2u * ROWS * TILE / 4u>; // [half][row][token]: of the scores
var<workgroup> weights: array<vec4<f16>, ROWS * WEIGHT_PITCH>;   // [row][token]
var<workgroup> rescales: array<f32, ROWS>; // what a row's earlier weights are multiplied with; at last, their sum
var<workgroup> exceeded: vec4<u32>;       // x: 1 if a row's earlier weights have to rescale
var<workgroup> bounds: vec4<u32>;         // of the workgroup's work: first KV row, end; its first row, the end of all

fn put_share(share: array<vec4<f16>, SHARE>, buffer: u32, local: u32) {
    for (var n = 0u; n < SHARE; n++) {
        let k = local + n * WORKGROUP;
        kv_rows[(buffer * TILE + k / CHUNKS) * PITCH + k % CHUNKS] = share[n];
    }
}

// Puts every other matrix of all queries, from number `odd` on, where the KV rows will be: half of them fit.
fn put_queries(first: u32, live: u32, odd: u32, local: u32) {
    for (var k = local; k < ROWS * QUERY_PITCH; k += WORKGROUP) {
        let row = min(first + k / QUERY_PITCH, live - 1u);
        let chunk = k % QUERY_PITCH;
        let values = q[row * CHUNKS + 4u * (chunk / 4u * 2u + odd) + chunk % 4u];
        kv_rows[k] = vec4<f16>(clamp(values, vec4<f32>(-65504.0), vec4<f32>(65504.0)));
    }
}

// Sixteen columns of a half of sixteen queries: matrix `step` of those that have been put.
fn query(rows: u32, half: u32, step: u32) -> coop_mat16x16<f16, A> {
    let at = 16u * rows * QUERY_PITCH + 4u * (half * KEY_STEPS / 2u + step);
    let pitch = QUERY_PITCH;
    return coopLoadT<coop_mat16x16<f16, A>>(&kv_rows[at], pitch);
}

// Scores, and what these columns add to them.
fn with_keys(
    scores: coop_mat16x16<f32, C>, queries: coop_mat16x16<f16, A>, buffer: u32, half: u32, step: u32,
) -> coop_mat16x16<f32, C> {
    let at = buffer * TILE * PITCH + 4u * (half * KEY_STEPS + step);
    let pitch = PITCH;
    let keys = coopLoad<coop_mat16x16<f16, B>>(&kv_rows[at], pitch);
    return coopMultiplyAdd(queries, keys, scores);
}

// Sums of sixteen rows from row 16 * tile on, each times what its earlier weights rescale by. Goes through the place of
// the scores, which are done with.
fn rescaled(sums: coop_mat16x16<f32, C>, tile: u32, subgroup: u32, lane: u32) -> coop_mat16x16<f32, C> {
    let scratch = 64u * subgroup;
    let pitch = 4u;
    workgroupBarrier();
    coopStoreT(sums, &partial[scratch], pitch);
    workgroupBarrier();
    for (var k = lane; k < 64u; k += 32u) {
        partial[scratch + k] *= rescales[16u * tile + k / 4u];
    }
    workgroupBarrier();
    return coopLoadT<coop_mat16x16<f32, C>>(&partial[scratch], pitch);
}

// Where the output goes: the workgroup's first row, one past the last of all rows, and the split.
struct Output {
    first_row: u32,
    live: u32,
    split: u32,
}

// Leaves sixteen rows of the output, from row 16 * tile of the workgroup's on, and sixteen columns. Invocation `i` is
// lane i % 32 of its subgroup.
fn leave(sums: coop_mat16x16<f32, C>, tile: u32, column: u32, output: Output, i: u32) {
    let scratch = 64u * (i / 32u);
    let pitch = 4u;
    workgroupBarrier();
    coopStoreT(sums, &partial[scratch], pitch);
    workgroupBarrier();
    for (var k = i % 32u; k < 64u; k += 32u) {
        let row = 16u * tile + k / 4u;
        if output.first_row + row < output.live {
            let chunk = 4u * column + k % 4u;
            leave_chunk(output.first_row + row, output.split, chunk, partial[scratch + k], rescales[row]);
        }
    }
}

// Leaves sixteen columns of all rows.
fn leave_column(
    first: coop_mat16x16<f32, C>, second: coop_mat16x16<f32, C>, third: coop_mat16x16<f32, C>,
    fourth: coop_mat16x16<f32, C>, column: u32, output: Output, i: u32,
) {
    leave(first, 0u, column, output, i);
    leave(second, 1u, column, output, i);
    leave(third, 2u, column, output, i);
    leave(fourth, 3u, column, output, i);
}
