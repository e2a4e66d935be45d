// Products of a tile by cooperative matrices: TILE_TOKENS vectors with TILE_ROWS staged rows, in f16, summed in f32.
// Both come to workgroup memory STEP columns at a time; while a step is multiplied the next one is on its way in
// registers. Subgroups stand ROW_SUBGROUPS abreast along the rows; each sums up to 4 by 4 matrices. PARTS
// workgroups share a tile, each for a part of the columns; if there are several, they leave their sums as they are.

const STEP = 32u * STEP_GROUPS;
const PITCH = STEP + 8u;                // of a row in workgroup memory, so that rows fall on other banks
const CHUNKS = STEP / 4u;               // of four values, of a vector's step
const VECTOR_SHARE = (TILE_TOKENS * CHUNKS + WORKGROUP - 1u) / WORKGROUP; // chunks that an invocation brings
const ROW_SHARE = (TILE_ROWS * STEP_GROUPS + WORKGROUP - 1u) / WORKGROUP; // groups of rows that an invocation brings
const PAIRED = ROW_SHARE % 2u == 0u;    // whether these are of rows SIDE apart by turns: then it knows of which matrix

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
        let place = staged_at(tile, r, group + at.y);
        if is_second(i, r) {
            share.rows[i] = second_raw(place);
        } else {
            share.rows[i] = w_raw(place);
        }
    }
    for (var i = 0u; i < VECTOR_SHARE; i++) {
        share.vectors[i] = x[starts[i] + 8u * group];
    }
    return share;
}

// Puts a share in workgroup memory: columns 0, 2, 1, 3 of every four, as the weights lie. Values that f16 cannot hold
// become the largest that it can, for they would be infinite.
fn put(share: Share, local: u32) {
    for (var i = 0u; i < ROW_SHARE; i++) {
        let at = brought(i, local);
        if at.x < TILE_ROWS {
            var halves: array<vec4<f16>, 8>;
            if is_second(i, at.x) {
                halves = second_halves(share.rows[i]);
            } else {
                halves = w_halves(share.rows[i]);
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

// Leaves two matrices of sums: of SIDE places from `first` on, and of a pair of SIDE rows each.
fn leave_both(tile: Tile, part: u32, first: u32, pair: u32, left: Sums, right: Sums, local: u32) {
    if PARTS > 1u {
        let to = output_at(tile, first) + part * STACKS * Y_STRIDE + tile.row + 2u * SIDE * pair;
        store_sums(left, to);
        store_sums(right, to + SIDE);
        return;
    }
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
    let places = workgroupUniformLoad(&found[3]); // matrices multiply only where all invocations are sure to come
    if places == 0u {
        return;
    }
    let tile = Tile(atomicLoad(&found[0]), atomicLoad(&found[1]), atomicLoad(&found[2]), places);
    let subgroup = local / 32u;
    let first_place = subgroup / ROW_SUBGROUPS * LEFTS * SIDE;
    let first_row = subgroup % ROW_SUBGROUPS * RIGHTS * SIDE;
    let pitch = PITCH / CELL;
    var starts: array<u32, VECTOR_SHARE>; // of this invocation's chunks: places without a vector repeat the last
    for (var i = 0u; i < VECTOR_SHARE; i++) {
        let n = local + i * WORKGROUP;
        starts[i] = input_at(tile, min(n / CHUNKS, tile.places - 1u)) + n % CHUNKS;
    }

    // Matrices by name: drivers keep arrays of them where they are slow.
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
        workgroupBarrier(); // all is read before the next step overwrites it
    }
    let pair = first_row / (2u * SIDE);
    leave_both(tile, part, first_place, pair, sum00, sum01, local);
    if RIGHTS > 2u { leave_both(tile, part, first_place, pair + 1u, sum02, sum03, local); }
    if LEFTS > 1u { leave_both(tile, part, first_place + 1u * SIDE, pair, sum10, sum11, local); }
    if LEFTS > 1u && RIGHTS > 2u { leave_both(tile, part, first_place + 1u * SIDE, pair + 1u, sum12, sum13, local); }
    if LEFTS > 2u { leave_both(tile, part, first_place + 2u * SIDE, pair, sum20, sum21, local); }
    if LEFTS > 2u && RIGHTS > 2u { leave_both(tile, part, first_place + 2u * SIDE, pair + 1u, sum22, sum23, local); }
    if LEFTS > 3u { leave_both(tile, part, first_place + 3u * SIDE, pair, sum30, sum31, local); }
    if LEFTS > 3u && RIGHTS > 2u { leave_both(tile, part, first_place + 3u * SIDE, pair + 1u, sum32, sum33, local); }
}
