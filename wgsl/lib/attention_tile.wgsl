// What attention by matrices keeps in workgroup memory, and the matrices made of it.
//
// Matrices multiply f16. The cache is f16; queries and weights are cut into TERMS of f16, so that two make them
// as good as f32.

// Drivers flush f16 below 6e-5 to zero: queries and weights are multiplied with these, so that second terms are
// seldom so small. e^6 times WEIGHT_UNIT is still far from what f16 can hold.
const QUERY_UNIT = 16.0;
const WEIGHT_UNIT = 64.0;
const ROWS = 16u;
const SUBGROUPS = WORKGROUP / 32u;
const PARTS = SUBGROUPS / (SPAN / 16u);
const KEY_STEPS = KV_ROW / (16u * PARTS);          // matrices of a key that a subgroup multiplies
const VALUE_TILES = RANK / (16u * SUBGROUPS);    // matrices of a value that are a subgroup's
const CHUNKS = KV_ROW / 4u;                        // of a KV row
const PITCH = KV_ROW + 8u;                         // of a KV row in workgroup memory, so that rows fall on other banks
const SHARE = (SPAN * CHUNKS) / WORKGROUP;       // chunks of a tile that an invocation loads
const WEIGHT_PITCH = SPAN + 8u;

var<storage, read> q: array<vec4<f32>>;
var<storage, read_write> parts: array<f32>;       // [token][head][split][rank]
var<storage, read_write> stats: array<vec2<f32>>; // [token][head][split]: reference score, sum of weights

var<workgroup> kv_rows: array<f16, SPAN * PITCH>;
var<workgroup> partial: array<f32, PARTS * ROWS * SPAN>;           // [part][head][token]: of the scores
var<workgroup> weights: array<f16, TERMS * ROWS * WEIGHT_PITCH>;   // [term][head][token]
var<workgroup> references: array<f32, ROWS>;
var<workgroup> totals: array<f32, ROWS>;
var<workgroup> rescales: array<f32, ROWS>;
// Matrices are loaded from multiples of 16 bytes. Nothing says where a driver lays these arrays: each is of so many
// bytes that the next is at such a place, whichever it is.
var<workgroup> exceeded: vec4<u32>; // x: 1 if a score is more than MARGIN above its reference
var<workgroup> bounds: vec4<u32>;   // x, y: of the split

// Puts chunk k of a tile in its place.
fn put(k: u32, v: vec4<f16>) {
    let at = k / CHUNKS * PITCH + 4u * (k % CHUNKS);
    for (var n = 0u; n < 4u; n++) {
        kv_rows[at + n] = v[n];
    }
}

// The leading bits of v, as many as f16 has. By masking: of a conversion there and back compilers make nothing.
fn leading(v: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(v) & 0xffffe000u);
}

// Term `term` of v: its leading bits, or what they leave.
fn term_of(v: vec4<f32>, term: u32) -> vec4<f16> {
    let held = clamp(v, vec4<f32>(-65504.0), vec4<f32>(65504.0));
    let first = vec4<f32>(leading(held.x), leading(held.y), leading(held.z), leading(held.w));
    return vec4<f16>(select(select(held, first, vec4<bool>(TERMS == 2u)), held - first, vec4<bool>(term == 1u)));
}

// Puts a term of the queries where the KV rows will be.
fn put_queries(first_head: u32, term: u32, local: u32) {
    for (var k = local; k < ROWS * CHUNKS; k += WORKGROUP) {
        put(k, term_of(QUERY_UNIT * q[first_head * CHUNKS + k], term));
    }
}

// Matrix `step` of a subgroup's columns of the queries, which have been put.
fn query(part: u32, step: u32) -> coop_mat16x16<f16, A> {
    let at = 16u * (part * KEY_STEPS + step);
    let pitch = PITCH;
    return coopLoadT<coop_mat16x16<f16, A>>(&kv_rows[at], pitch);
}

// Scores, and what matrix `step` of the same columns of 16 keys adds to them.
fn with_keys(
    scores: coop_mat16x16<f32, C>, first: coop_mat16x16<f16, A>, second: coop_mat16x16<f16, A>,
    tokens: u32, part: u32, step: u32,
) -> coop_mat16x16<f32, C> {
    let at = tokens * PITCH + 16u * (part * KEY_STEPS + step);
    let pitch = PITCH;
    let keys = coopLoad<coop_mat16x16<f16, B>>(&kv_rows[at], pitch);
    let sum = coopMultiplyAdd(first, keys, scores);
    if TERMS == 2u {
        return coopMultiplyAdd(second, keys, sum);
    }
    return sum;
}

// Sums, and what 16 weighted values from token 16k on add to them.
fn with_values(
    sums: coop_mat16x16<f32, C>, shares: coop_mat16x16<f16, A>, k: u32, column: u32,
) -> coop_mat16x16<f32, C> {
    let at = 16u * k * PITCH + 16u * column;
    let pitch = PITCH;
    let values = coopLoadT<coop_mat16x16<f16, B>>(&kv_rows[at], pitch);
    return coopMultiplyAdd(shares, values, sums);
}

// Sums, each head's times what its earlier weights rescale by. Goes through the place of the scores, which are done
// with.
fn rescaled(sums: coop_mat16x16<f32, C>, subgroup: u32, lane: u32) -> coop_mat16x16<f32, C> {
    let scratch = 256u * subgroup;
    let pitch = 16u;
    workgroupBarrier();
    coopStoreT(sums, &partial[scratch], pitch);
    workgroupBarrier();
    for (var k = lane; k < 256u; k += 32u) {
        partial[scratch + k] *= rescales[k / 16u];
    }
    workgroupBarrier();
    return coopLoadT<coop_mat16x16<f32, C>>(&partial[scratch], pitch);
}

// Leaves sums as the output of 16 heads, those of slot and after, from column 16 * column on.
fn leave(sums: coop_mat16x16<f32, C>, slot: u32, column: u32) {
    let to = slot * RANK + 16u * column;
    let pitch = split_count() * RANK;
    coopStoreT(sums, &parts[to], pitch);
}
