// What products by cooperative matrices keep in workgroup memory: how it comes there, and how sums leave.

const SUBGROUPS = WORKGROUP / 32u;
const TILE_TOKENS = SUBGROUPS / ROW_SUBGROUPS * LEFTS * SIDE;
const TILE_ROWS = ROW_SUBGROUPS * RIGHTS * SIDE;
const STEP = 32u * STEP_GROUPS;
const PITCH = STEP + 8u;                // of a row in workgroup memory, so that rows fall on other banks
const CHUNKS = STEP / 4u;               // of a vector's step
const VECTOR_SHARE = (TILE_TOKENS * CHUNKS + WORKGROUP - 1u) / WORKGROUP; // chunks that an invocation brings
const ROW_SHARE = (TILE_ROWS * STEP_GROUPS + WORKGROUP - 1u) / WORKGROUP; // groups that an invocation brings
const PAIRED = ROW_SHARE % 2u == 0u;    // of rows SIDE apart, so that none asks which weight is its own

var<storage, read> x: array<vec4<f32>>;
var<storage, read_write> y: array<f32>;

// Matrices are loaded from multiples of 16 bytes: each array is of so many bytes that the next is at such a place.
var<workgroup> vectors: array<Cell, TILE_TOKENS * PITCH / CELL>; // [place][column]
var<workgroup> rows: array<Cell, TILE_ROWS * PITCH / CELL>;      // [staged row][column]
var<workgroup> sums: array<f32, SUBGROUPS * SIDE * SIDE>;
var<workgroup> found: array<atomic<u32>, 4>;                     // the tile: its matrix, row, first place and places

// The group of a step that an invocation brings i-th: its staged row, or one past the tile, and its place in the row.
fn brought(i: u32, local: u32) -> vec2<u32> {
    if PAIRED {
        let n = local + i / 2u * WORKGROUP;
        let pair = n / STEP_GROUPS;
        return vec2<u32>(pair / SIDE * 2u * SIDE + pair % SIDE + i % 2u * SIDE, n % STEP_GROUPS);
    }
    let n = local + i * WORKGROUP;
    return vec2<u32>(n / STEP_GROUPS, n % STEP_GROUPS);
}

// True if what is brought i-th, in staged row r, is of the second row of a pair.
fn is_second(i: u32, r: u32) -> bool {
    return select(r % (2u * SIDE) >= SIDE, i % 2u == 1u, PAIRED);
}

// What an invocation brings of a step.
struct Share {
    vectors: array<vec4<f32>, VECTOR_SHARE>,
    rows: array<array<vec4<u32>, 4>, ROW_SHARE>,
}

fn share_of(tile: Tile, starts: array<u32, VECTOR_SHARE>, group: u32, local: u32) -> Share {
    var share: Share;
    for (var i = 0u; i < ROW_SHARE; i++) {
        let at = brought(i, local);
        let r = min(at.x, TILE_ROWS - 1u);
        if is_second(i, r) {
            share.rows[i] = second_raw(tile, r, group + at.y);
        } else {
            share.rows[i] = first_raw(tile, r, group + at.y);
        }
    }
    for (var i = 0u; i < VECTOR_SHARE; i++) {
        share.vectors[i] = x[starts[i] + 8u * group];
    }
    return share;
}

// Columns 0, 2, 1, 3 of every four, as the weights lie. Values are what f16 can hold: past that they would be infinite.
fn put(share: Share, local: u32) {
    for (var i = 0u; i < ROW_SHARE; i++) {
        let at = brought(i, local);
        if at.x < TILE_ROWS {
            var halves: array<vec4<f16>, 8>;
            if is_second(i, at.x) {
                halves = second_halves(share.rows[i]);
            } else {
                halves = first_halves(share.rows[i]);
            }
            for (var k = 0u; k < 8u; k++) {
                put_row(at.x * PITCH + 32u * at.y + 4u * k, halves[k]);
            }
        }
    }
    for (var i = 0u; i < VECTOR_SHARE; i++) {
        let n = local + i * WORKGROUP;
        if n < TILE_TOKENS * CHUNKS {
            let held = clamp(share.vectors[i].xzyw, vec4<f32>(-65504.0), vec4<f32>(65504.0));
            put_vector(n / CHUNKS * PITCH + 4u * (n % CHUNKS), vec4<f16>(held));
        }
    }
}

// Leaves two matrices of sums, of the places from `first` on and of a pair of sixteens.
fn leave_both(tile: Tile, first: u32, pair: u32, left: Sums, right: Sums, local: u32) {
    if DIRECT && tile.places == TILE_TOKENS {
        let to = output_at(tile, first) + tile.row + 2u * SIDE * pair;
        store_sums(left, to);
        store_sums(right, to + SIDE);
        return;
    }
    let lane = local % 32u;
    let scratch = local / 32u * SIDE * SIDE;
    let pitch = SIDE;
    var kept: array<f32, SIDE * SIDE / 32u>;
    coopStoreT(left, &sums[scratch], pitch);
    workgroupBarrier();
    for (var k = 0u; k < SIDE * SIDE / 32u; k++) {
        kept[k] = sums[scratch + lane + 32u * k] / WEIGHT_UNIT;
    }
    workgroupBarrier();
    coopStoreT(right, &sums[scratch], pitch);
    workgroupBarrier();
    for (var k = 0u; k < SIDE * SIDE / 32u; k++) {
        let n = lane + 32u * k;
        let place = first + n / SIDE;
        if place < tile.places {
            leave(tile, place, pair, n % SIDE, kept[k], sums[scratch + n] / WEIGHT_UNIT);
        }
    }
    workgroupBarrier();
}
