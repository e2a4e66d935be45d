// What attention by matrices of 8 x 8 keeps in workgroup memory, and the matrices made of it.
//
// A workgroup has ROWS rows, each the query of a head of a token, and brings a tile of TILE KV rows of the cache at a
// time. Its subgroups divide the columns among them: of the keys, whose scores are summed up from all of them, and of
// the values. Metal loads matrices of 8 x 8 from arrays of scalars alone.

alias Left = coop_mat8x8<Operand, A>;
alias Right = coop_mat8x8<Operand, B>;
alias Sums = coop_mat8x8<f32, C>;

const LOWEST = -1e30; // below every score; finite, for fast-math compilers assume no infinity
// Weights are relative to a score that is at most MARGIN below the largest so far: only where one exceeds that by more
// are earlier sums brought down.
const MARGIN = 6.0;
const SUBGROUPS = WORKGROUP / 32u;
const KEY_STEPS = KV_ROW / (8u * SUBGROUPS);             // matrices of a key that are a subgroup's
const VALUE_TILES = RANK / (8u * SUBGROUPS);           // matrices of a value that are
const CHUNKS = KV_ROW / 4u;                              // of a KV row
const PITCH = KV_ROW + (40u - KV_ROW % 32u) % 32u;         // of a KV row in workgroup memory, so that rows fall on other banks
const SHARE = (TILE * CHUNKS + WORKGROUP - 1u) / WORKGROUP; // chunks of a tile that an invocation loads
const LANES = 8u;                                      // invocations that make a row's weights
const SCRATCH = ROWS * TILE;                           // a subgroup's own part of `partial`

var<storage, read> q: array<vec4<f32>>;

var<workgroup> kv_rows: array<Operand, TILE * PITCH>;
var<workgroup> partial: array<f32, SUBGROUPS * SCRATCH>; // [subgroup][row][KV row]: of the scores
var<workgroup> weights: array<Operand, ROWS * TILE>;     // [row][KV row]
// What a row's earlier weights are multiplied with; at last, their sum: bits of f32, which one lane leaves for all.
var<workgroup> rescales: array<atomic<u32>, ROWS>;
var<workgroup> any_rescale: atomic<u32>;  // 1 if earlier sums have to rescale
var<workgroup> bounds: vec4<u32>;         // of the workgroup's work, which every invocation writes for itself

// The workgroup's part of the work.
struct Work {
    first_row: u32,
    live: u32,  // one past the last row of all
    start: u32, // first KV row
    end: u32,   // one past the last that any row sees; no more than start if there is nothing to do
}

// What an invocation knows of its row: LANES of them share one.
struct Softmax {
    seen: u32,      // KV rows up to the row's own token's
    reference: f32, // score that weights are relative to
    total: f32,     // of the weights that were this invocation's
}

fn put(k: u32, v: vec4<f32>) {
    let at = k / CHUNKS * PITCH + 4u * (k % CHUNKS);
    for (var n = 0u; n < 4u; n++) {
        kv_rows[at + n] = operand(v[n]);
    }
}

fn put_share(share: array<vec4<f16>, SHARE>, i: u32) {
    for (var n = 0u; n < SHARE; n++) {
        let k = i + n * WORKGROUP;
        if k < TILE * CHUNKS {
            put(k, vec4<f32>(share[n]));
        }
    }
}

// Puts the queries of eight rows where the KV rows will be. Rows past the last repeat it.
fn put_queries(first: u32, live: u32, i: u32) {
    for (var k = i; k < 8u * CHUNKS; k += WORKGROUP) {
        put(k, q[min(first + k / CHUNKS, live - 1u) * CHUNKS + k % CHUNKS]);
    }
}

// Matrix `step` of a subgroup's columns of the queries, which have been put.
fn query(subgroup: u32, step: u32) -> Left {
    let at = 8u * (subgroup * KEY_STEPS + step);
    let pitch = PITCH;
    return coopLoadT<Left>(&kv_rows[at], pitch);
}

// Adds to a score of eight KV rows what their columns from `at` on add, for eight rows or, `both`, for sixteen.
fn add_keys(scores: ptr<function, Sums>, queries: Left, at: u32) {
    let pitch = PITCH;
    let keys = coopLoad<Right>(&kv_rows[at], pitch);
    *scores = coopMultiplyAdd(queries, keys, *scores);
}

fn add_keys_to_both(scores: ptr<function, Sums>, others: ptr<function, Sums>, first: Left, second: Left, at: u32) {
    let pitch = PITCH;
    let keys = coopLoad<Right>(&kv_rows[at], pitch);
    *scores = coopMultiplyAdd(first, keys, *scores);
    *others = coopMultiplyAdd(second, keys, *others);
}

// Adds to sums what eight KV rows' weighted values from `at` on add.
fn add_values(sums: ptr<function, Sums>, shares: Left, at: u32) {
    let pitch = PITCH;
    let values = coopLoadT<Right>(&kv_rows[at], pitch);
    *sums = coopMultiplyAdd(shares, values, *sums);
}

fn add_values_to_both(sums: ptr<function, Sums>, others: ptr<function, Sums>, first: Left, second: Left, at: u32) {
    let pitch = PITCH;
    let values = coopLoadT<Right>(&kv_rows[at], pitch);
    *sums = coopMultiplyAdd(first, values, *sums);
    *others = coopMultiplyAdd(second, values, *others);
}

// The largest of LANES neighbours' v, and the sum.
fn row_max(v: f32) -> f32 {
    let two = max(v, subgroupShuffleXor(v, 1u));
    let four = max(two, subgroupShuffleXor(two, 2u));
    return max(four, subgroupShuffleXor(four, 4u));
}

fn row_sum(v: f32) -> f32 {
    let two = v + subgroupShuffleXor(v, 1u);
    let four = two + subgroupShuffleXor(two, 2u);
    return four + subgroupShuffleXor(four, 4u);
}

// Makes weights of the tile's scores of invocation i's row, of `rows` that there are. Invocations past the last row do
// as that one's do, but leave nothing.
fn weigh(row: ptr<function, Softmax>, tile: u32, rows: u32, i: u32) {
    let r = min(i / LANES, rows - 1u);
    var scores: array<f32, TILE / LANES>;
    var largest = LOWEST;
    for (var n = 0u; n < TILE / LANES; n++) {
        let t = i % LANES + n * LANES;
        var score = 0.0;
        for (var part = 0u; part < SUBGROUPS; part++) {
            score += partial[part * SCRATCH + r * TILE + t];
        }
        scores[n] = select(LOWEST, SCALE * score, tile + t < (*row).seen);
        largest = max(largest, scores[n]);
    }
    let top = row_max(largest);
    let before = (*row).reference;
    let exceeded = top > before + MARGIN;
    let reference = select(before, top, exceeded);
    let rescale = exp(before - reference);
    var total = (*row).total * rescale;
    for (var n = 0u; n < TILE / LANES; n++) {
        let seen = scores[n] > LOWEST; // a row may see nothing of a tile
        let weight = select(0.0, WEIGHT_UNIT * exp(scores[n] - reference), seen);
        if i / LANES < rows {
            weights[r * TILE + i % LANES + n * LANES] = operand(weight);
        }
        total += weight;
    }
    if i / LANES < rows && i % LANES == 0u {
        atomicStore(&rescales[r], bitcast<u32>(rescale));
        if exceeded && before > LOWEST { // of the first tile there are no earlier sums
            atomicStore(&any_rescale, 1u);
        }
    }
    (*row).reference = reference;
    (*row).total = total;
}

// Sums of the same columns of all rows, each row's times what its earlier weights rescale by. Goes through the place of
// the scores, which are done with.
fn rescale(sums: ptr<function, Sums>, others: ptr<function, Sums>, subgroup: u32, lane: u32) {
    let scratch = SCRATCH * subgroup;
    let second = scratch + 64u;
    let pitch = 8u;
    workgroupBarrier();
    coopStoreT(*sums, &partial[scratch], pitch);
    if ROWS > 8u { coopStoreT(*others, &partial[second], pitch); }
    workgroupBarrier();
    for (var k = lane; k < 8u * ROWS; k += 32u) {
        partial[scratch + k] *= bitcast<f32>(atomicLoad(&rescales[k / 8u]));
    }
    workgroupBarrier();
    *sums = coopLoadT<Sums>(&partial[scratch], pitch);
    if ROWS > 8u { *others = coopLoadT<Sums>(&partial[second], pitch); }
}

// Leaves eight columns of all rows, from column 8 * column on. `rescales` holds the rows' sums of weights.
fn leave(sums: Sums, others: Sums, column: u32, split: u32, work: Work, i: u32) {
    let scratch = SCRATCH * (i / 32u);
    let second = scratch + 64u;
    let pitch = 8u;
    workgroupBarrier();
    coopStoreT(sums, &partial[scratch], pitch);
    if ROWS > 8u { coopStoreT(others, &partial[second], pitch); }
    workgroupBarrier();
    for (var k = i % 32u; k < 2u * ROWS; k += 32u) {
        let row = work.first_row + k / 2u;
        let at = scratch + 4u * k;
        if row < work.live {
            let chunk = vec4<f32>(partial[at], partial[at + 1u], partial[at + 2u], partial[at + 3u]);
            let total = bitcast<f32>(atomicLoad(&rescales[k / 2u]));
            leave_chunk(row, split, 2u * column + k % 2u, chunk, total);
        }
    }
}
