// Products of a tile with cooperative matrices: TILE_TOKENS vectors with TILE_ROWS staged rows, in f16, summed in f32.
// Both are staged in workgroup memory STEP columns at a time; while a step is multiplied, the next one is loaded to
// registers. There are ROW_SUBGROUPS subgroups along the rows; each sums up to 4 by 4 matrices. PARTS workgroups share
// a tile, each for a part of the columns; if there are several, each writes its own sums.

const STEP = 32u * STEP_GROUPS;
const PITCH = STEP + 8u;                // of a row in workgroup memory, so that rows are in different banks
const CHUNKS = STEP / 4u;               // of four values, of a vector's step
const VECTOR_SHARE = (TILE_TOKENS * CHUNKS + WORKGROUP - 1u) / WORKGROUP; // chunks that an invocation loads
const ROW_SHARE = (TILE_ROWS * STEP_GROUPS + WORKGROUP - 1u) / WORKGROUP; // groups of rows that an invocation loads
const PAIRED = ROW_SHARE % 2u == 0u;    // whether these alternate between rows SIDE apart

var<storage, read> x: array<vec4<f32>>;
var<storage, read_write> y: array<f32>;

// Matrices are loaded from multiples of 16 bytes, so the size of each array is a multiple of 16 bytes.
var<workgroup> vectors: array<Cell, TILE_TOKENS * PITCH / CELL>; // [place][column]
var<workgroup> rows: array<Cell, TILE_ROWS * PITCH / CELL>;      // [staged row][column]
var<workgroup> found: array<atomic<u32>, 4>;                     // the tile: its matrix, row, first place and places

// The i-th group of a step that an invocation loads: its staged row, or one past the tile, and its index in the row.
fn brought(i: u32, local: u32) -> vec2<u32> {
    if PAIRED {
        let n = local + i / 2u * WORKGROUP;
        let pair = n / STEP_GROUPS;
        return vec2<u32>(pair / SIDE * 2u * SIDE + pair % SIDE + i % 2u * SIDE, n % STEP_GROUPS);
    }
    let n = local + i * WORKGROUP;
    return vec2<u32>(n / STEP_GROUPS, n % STEP_GROUPS);
}

// Whether the i-th loaded group, in staged row r, belongs to the second row of a pair.
fn is_second(i: u32, r: u32) -> bool {
    return select(r % (2u * SIDE) >= SIDE, i % 2u == 1u, PAIRED);
}

// An invocation's share of a step. Nothing here is indexed by a loop: compilers that do not unroll it, possibly
// Metal's, would keep it in memory. src/kernels/mul_mm_matrix.rs limits tiles to MOST_VECTORS and MOST_ROWS.
const MOST_VECTORS = 16u;
const MOST_ROWS = 4u;

struct Share {
    vectors: array<array<vec4<f32>, 4>, MOST_VECTORS / 4u>,
    rows: array<array<vec4<u32>, 4>, MOST_ROWS>,
}

// The vec4 at which an invocation's i-th chunk starts. Places past the last vector repeat it.
fn start_of(tile: Tile, i: u32, local: u32) -> u32 {
    let n = local + i * WORKGROUP;
    return input_at(tile, min(n / CHUNKS, tile.places - 1u)) + n % CHUNKS;
}

fn four_starts(tile: Tile, i: u32, local: u32) -> vec4<u32> {
    return vec4<u32>(
        start_of(tile, i, local), start_of(tile, i + 1u, local), start_of(tile, i + 2u, local),
        start_of(tile, i + 3u, local),
    );
}

fn starts_of(tile: Tile, local: u32) -> array<vec4<u32>, MOST_VECTORS / 4u> {
    var starts: array<vec4<u32>, MOST_VECTORS / 4u>;
    starts[0] = four_starts(tile, 0u, local);
    if VECTOR_SHARE > 4u { starts[1] = four_starts(tile, 4u, local); }
    if VECTOR_SHARE > 8u { starts[2] = four_starts(tile, 8u, local); }
    if VECTOR_SHARE > 12u { starts[3] = four_starts(tile, 12u, local); }
    return starts;
}

// Those of chunks i to i + 3 of a step that an invocation loads.
fn four_chunks(i: u32, starts: vec4<u32>, group: u32) -> array<vec4<f32>, 4> {
    var chunks: array<vec4<f32>, 4>;
    chunks[0] = x[starts.x + 8u * group];
    if i + 1u < VECTOR_SHARE { chunks[1] = x[starts.y + 8u * group]; }
    if i + 2u < VECTOR_SHARE { chunks[2] = x[starts.z + 8u * group]; }
    if i + 3u < VECTOR_SHARE { chunks[3] = x[starts.w + 8u * group]; }
    return chunks;
}

fn raw_of(i: u32, tile: Tile, group: u32, local: u32) -> array<vec4<u32>, 4> {
    let at = brought(i, local);
    let r = min(at.x, TILE_ROWS - 1u);
    let place = staged_at(tile, r, group + at.y);
    if is_second(i, r) {
        return second_raw(place);
    }
    return w_raw(place);
}

fn share_of(tile: Tile, starts: array<vec4<u32>, MOST_VECTORS / 4u>, group: u32, local: u32) -> Share {
    var share: Share;
    share.rows[0] = raw_of(0u, tile, group, local);
    if ROW_SHARE > 1u { share.rows[1] = raw_of(1u, tile, group, local); }
    if ROW_SHARE > 2u { share.rows[2] = raw_of(2u, tile, group, local); }
    if ROW_SHARE > 3u { share.rows[3] = raw_of(3u, tile, group, local); }
    share.vectors[0] = four_chunks(0u, starts[0], group);
    if VECTOR_SHARE > 4u { share.vectors[1] = four_chunks(4u, starts[1], group); }
    if VECTOR_SHARE > 8u { share.vectors[2] = four_chunks(8u, starts[2], group); }
    if VECTOR_SHARE > 12u { share.vectors[3] = four_chunks(12u, starts[3], group); }
    return share;
}

fn put_raw(i: u32, raw: array<vec4<u32>, 4>, local: u32) {
    let at = brought(i, local);
    if at.x < TILE_ROWS {
        var halves: array<vec4<f16>, 8>;
        if is_second(i, at.x) {
            halves = second_halves(raw);
        } else {
            halves = w_halves(raw);
        }
        let to = at.x * PITCH + 32u * at.y;
        put_row(to, halves[0]);
        put_row(to + 4u, halves[1]);
        put_row(to + 8u, halves[2]);
        put_row(to + 12u, halves[3]);
        put_row(to + 16u, halves[4]);
        put_row(to + 20u, halves[5]);
        put_row(to + 24u, halves[6]);
        put_row(to + 28u, halves[7]);
    }
}

// The vectors are in the range of f16 (lib/half_range.wgsl).
fn put_chunk(i: u32, chunk: vec4<f32>, local: u32) {
    let n = local + i * WORKGROUP;
    if i < VECTOR_SHARE && n < TILE_TOKENS * CHUNKS {
        put_vector(n / CHUNKS * PITCH + 4u * (n % CHUNKS), vec4<f16>(VECTOR_UNIT * chunk.xzyw));
    }
}

fn put_four(i: u32, chunks: array<vec4<f32>, 4>, local: u32) {
    put_chunk(i, chunks[0], local);
    put_chunk(i + 1u, chunks[1], local);
    put_chunk(i + 2u, chunks[2], local);
    put_chunk(i + 3u, chunks[3], local);
}

// Stores a share in workgroup memory: columns 0, 2, 1, 3 of every four, like the weights.
fn put(share: Share, local: u32) {
    put_raw(0u, share.rows[0], local);
    if ROW_SHARE > 1u { put_raw(1u, share.rows[1], local); }
    if ROW_SHARE > 2u { put_raw(2u, share.rows[2], local); }
    if ROW_SHARE > 3u { put_raw(3u, share.rows[3], local); }
    put_four(0u, share.vectors[0], local);
    if VECTOR_SHARE > 4u { put_four(4u, share.vectors[1], local); }
    if VECTOR_SHARE > 8u { put_four(8u, share.vectors[2], local); }
    if VECTOR_SHARE > 12u { put_four(12u, share.vectors[3], local); }
}

// Stores RIGHTS matrices of sums of SIDE vectors, beginning at `first`, and of pairs of SIDE rows each, beginning at
// `pair`.
fn leave_row(tile: Tile, part: u32, first: u32, pair: u32, s0: Sums, s1: Sums, s2: Sums, s3: Sums, local: u32) {
    if PARTS > 1u || (DIRECT && tile.places == TILE_TOKENS) {
        let to = output_at(tile, first) + part * STACKS * Y_STRIDE + tile.row + 2u * SIDE * pair;
        store_sums(s0, to);
        store_sums(s1, to + SIDE);
        if RIGHTS > 2u { store_sums(s2, to + 2u * SIDE); }
        if RIGHTS > 2u { store_sums(s3, to + 3u * SIDE); }
        return;
    }
    leave_sums(tile, first, pair, s0, s1, s2, s3, local);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let at = in_grid(workgroup);
    let part = at.z / STACKS;
    if local == 0u {
        let mine = tile_of(vec3<u32>(at.xy, at.z % STACKS));
        atomicStore(&found[0], mine.matrix);
        atomicStore(&found[1], mine.row);
        atomicStore(&found[2], mine.first);
        atomicStore(&found[3], mine.places);
    }
    let places = workgroupUniformLoad(&found[3]); // matrices may only be multiplied in uniform control flow
    if places == 0u {
        return;
    }
    let tile = Tile(atomicLoad(&found[0]), atomicLoad(&found[1]), atomicLoad(&found[2]), places);
    let subgroup = local / 32u;
    let first_place = subgroup / ROW_SUBGROUPS * LEFTS * SIDE;
    let first_row = subgroup % ROW_SUBGROUPS * RIGHTS * SIDE;
    let pitch = PITCH / CELL;
    let starts = starts_of(tile, local);

    // Separate variables, because drivers keep arrays of matrices in slow memory.
    var sum00 = Sums(); var sum01 = Sums(); var sum02 = Sums(); var sum03 = Sums();
    var sum10 = Sums(); var sum11 = Sums(); var sum12 = Sums(); var sum13 = Sums();
    var sum20 = Sums(); var sum21 = Sums(); var sum22 = Sums(); var sum23 = Sums();
    var sum30 = Sums(); var sum31 = Sums(); var sum32 = Sums(); var sum33 = Sums();
    let steps = w_GROUPS / STEP_GROUPS;
    var group = part * steps / PARTS * STEP_GROUPS;
    let end = (part + 1u) * steps / PARTS * STEP_GROUPS;
    var share = share_of(tile, starts, group, local);
    for (; group < end; group += STEP_GROUPS) {
        put(share, local);
        workgroupBarrier();
        share = share_of(tile, starts, min(group + STEP_GROUPS, end - STEP_GROUPS), local);
        for (var k = 0u; k < STEP; k += SIDE) {
            let from_rows = (first_row * PITCH + k) / CELL;
            let from_places = (first_place * PITCH + k) / CELL;
            let row1 = from_rows + 1u * SIDE * PITCH / CELL;
            let row2 = from_rows + 2u * SIDE * PITCH / CELL;
            let row3 = from_rows + 3u * SIDE * PITCH / CELL;
            let place1 = from_places + 1u * SIDE * PITCH / CELL;
            let place2 = from_places + 2u * SIDE * PITCH / CELL;
            let place3 = from_places + 3u * SIDE * PITCH / CELL;
            let b0 = coopLoad<Right>(&rows[from_rows], pitch);
            var b1: Right;
            var b2: Right;
            var b3: Right;
            if RIGHTS > 1u { b1 = coopLoad<Right>(&rows[row1], pitch); }
            if RIGHTS > 2u { b2 = coopLoad<Right>(&rows[row2], pitch); }
            if RIGHTS > 3u { b3 = coopLoad<Right>(&rows[row3], pitch); }
            let a0 = coopLoadT<Left>(&vectors[from_places], pitch);
            sum00 = coopMultiplyAdd(a0, b0, sum00);
            if RIGHTS > 1u { sum01 = coopMultiplyAdd(a0, b1, sum01); }
            if RIGHTS > 2u { sum02 = coopMultiplyAdd(a0, b2, sum02); }
            if RIGHTS > 3u { sum03 = coopMultiplyAdd(a0, b3, sum03); }
            if LEFTS > 1u {
                let a1 = coopLoadT<Left>(&vectors[place1], pitch);
                sum10 = coopMultiplyAdd(a1, b0, sum10);
                if RIGHTS > 1u { sum11 = coopMultiplyAdd(a1, b1, sum11); }
                if RIGHTS > 2u { sum12 = coopMultiplyAdd(a1, b2, sum12); }
                if RIGHTS > 3u { sum13 = coopMultiplyAdd(a1, b3, sum13); }
            }
            if LEFTS > 2u {
                let a2 = coopLoadT<Left>(&vectors[place2], pitch);
                sum20 = coopMultiplyAdd(a2, b0, sum20);
                if RIGHTS > 1u { sum21 = coopMultiplyAdd(a2, b1, sum21); }
                if RIGHTS > 2u { sum22 = coopMultiplyAdd(a2, b2, sum22); }
                if RIGHTS > 3u { sum23 = coopMultiplyAdd(a2, b3, sum23); }
            }
            if LEFTS > 3u {
                let a3 = coopLoadT<Left>(&vectors[place3], pitch);
                sum30 = coopMultiplyAdd(a3, b0, sum30);
                if RIGHTS > 1u { sum31 = coopMultiplyAdd(a3, b1, sum31); }
                if RIGHTS > 2u { sum32 = coopMultiplyAdd(a3, b2, sum32); }
                if RIGHTS > 3u { sum33 = coopMultiplyAdd(a3, b3, sum33); }
            }
        }
        workgroupBarrier(); // everything is read before the next step overwrites it
    }
    let pair = first_row / (2u * SIDE);
    leave_row(tile, part, first_place, pair, sum00, sum01, sum02, sum03, local);
    if LEFTS > 1u { leave_row(tile, part, first_place + 1u * SIDE, pair, sum10, sum11, sum12, sum13, local); }
    if LEFTS > 2u { leave_row(tile, part, first_place + 2u * SIDE, pair, sum20, sum21, sum22, sum23, local); }
    if LEFTS > 3u { leave_row(tile, part, first_place + 3u * SIDE, pair, sum30, sum31, sum32, sum33, local); }
}
