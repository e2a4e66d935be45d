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
// Metal's, would keep it in memory. src/kernels/mul_mm_matrix.rs limits tiles to MAX_VECTORS and MAX_ROWS.
const MAX_VECTORS = 16u;
const MAX_ROWS = 4u;

struct Share {
    vectors: array<array<vec4<f32>, 4>, MAX_VECTORS / 4u>,
    rows: array<array<vec4<u32>, 4>, MAX_ROWS>,
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

fn starts_of(tile: Tile, local: u32) -> array<vec4<u32>, MAX_VECTORS / 4u> {
    var starts: array<vec4<u32>, MAX_VECTORS / 4u>;
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

// The matrix of the workgroup's tile, in uniform control flow.
fn matrix_of(tile: Tile) -> u32 {
    return workgroupUniformLoad(&found[0]);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let at = in_grid(workgroup);
    if extra_work(at, local) {
        return;
    }
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
    multiply(tile, part, local);
}
