// Expands the KV rows of a segment to the keys and values of all heads, as in op/expand_kv.wgsl, with cooperative
// matrices of SIDE x SIDE, which are loaded like those of products.
//
// A workgroup computes ROWS columns of TOKENS keys or values, which are 64 and 8 times SIDE. It stages STEP values of
// the latents at a time, with the weights that multiply them: those of values as [row][column], as in the file; those
// of keys, whose rows are summed over, as [column][row]. Subgroups each sum 4 by RIGHTS matrices, of 32 columns.

const STEP = 64u;
const PITCH = STEP + 8u; // of a staged row, so that rows are in different banks
const TOKENS = 8u * SIDE;
const ROWS = 64u;
const RIGHTS = 32u / SIDE;
const ABREAST = 256u / (SIDE * SIDE); // matrices of sums that are stored together: as many as 32 lanes store at once
const KEY_TILES = (NOPE + ROWS - 1u) / ROWS;
const VALUE_TILES = (VALUE + ROWS - 1u) / ROWS;
const LATENT_SHARE = TOKENS * STEP / 8u / WORKGROUP; // chunks of a step that an invocation loads

var<storage, read_write> expanded: array<vec4<u32>>;

// Matrices are loaded from multiples of 16 bytes, so the size of each array is a multiple of 16 bytes.
var<workgroup> vectors: array<Cell, TOKENS * PITCH / CELL>; // latents: [KV row][column]
var<workgroup> rows: array<Cell, ROWS * PITCH / CELL>;
var<workgroup> sums: array<f32, SUBGROUPS * ABREAST * SIDE * SIDE>;
// The number of KV rows of the tile; the index of the first in the pool; 1 for keys, 0 for values. Every invocation
// writes it.
var<workgroup> tile: vec4<u32>;

// The group of weights that an invocation loads for a step: the step begins at `column`, and the computed columns at
// `row`.
fn raw(is_key: bool, head: u32, row: u32, column: u32, local: u32) -> array<vec4<u32>, 4> {
    let along = local / 2u; // the staged row
    let group = local % 2u;
    if is_key {
        let of_row = min(row / 32u + group, k_GROUPS - 1u);
        return k_raw((head * RANK + column + along) * k_GROUPS + of_row);
    }
    return v_raw((head * VALUE + min(row + along, VALUE - 1u)) * v_GROUPS + column / 32u + group);
}

// Stores it; every four of its values are in the order 0, 2, 1, 3.
fn put_raw(is_key: bool, raw: array<vec4<u32>, 4>, local: u32) {
    var halves: array<vec4<f16>, 8>;
    if is_key {
        halves = k_halves(raw);
    } else {
        halves = v_halves(raw);
    }
    let to = local / 2u * PITCH + local % 2u * 32u;
    put_row(to, halves[0].xzyw);
    put_row(to + 4u, halves[1].xzyw);
    put_row(to + 8u, halves[2].xzyw);
    put_row(to + 12u, halves[3].xzyw);
    put_row(to + 16u, halves[4].xzyw);
    put_row(to + 20u, halves[5].xzyw);
    put_row(to + 24u, halves[6].xzyw);
    put_row(to + 28u, halves[7].xzyw);
}

// An invocation's share of the latents, beginning at `column`: LATENT_SHARE of up to eight eights, each in a separate
// variable, because compilers that do not unroll loops would keep an array in memory.
fn eight_of(i: u32, found: vec4<u32>, column: u32, local: u32) -> vec4<u32> {
    let n = local + i * WORKGROUP;
    let place = found.y + min(n / (STEP / 8u), found.x - 1u);
    return latent_eight(place, column / 8u + n % (STEP / 8u));
}

fn latents_of(found: vec4<u32>, column: u32, local: u32) -> array<vec4<u32>, 8> {
    var share: array<vec4<u32>, 8>;
    share[0] = eight_of(0u, found, column, local);
    share[1] = eight_of(1u, found, column, local);
    share[2] = eight_of(2u, found, column, local);
    share[3] = eight_of(3u, found, column, local);
    if LATENT_SHARE > 4u {
        share[4] = eight_of(4u, found, column, local);
        share[5] = eight_of(5u, found, column, local);
        share[6] = eight_of(6u, found, column, local);
        share[7] = eight_of(7u, found, column, local);
    }
    return share;
}

fn put_eight(i: u32, eight: vec4<u32>, local: u32) {
    let n = local + i * WORKGROUP;
    let at = n / (STEP / 8u) * PITCH + 8u * (n % (STEP / 8u));
    put_vector(at, first_of_eight(eight));
    put_vector(at + 4u, second_of_eight(eight));
}

fn put_latents(share: array<vec4<u32>, 8>, local: u32) {
    put_eight(0u, share[0], local);
    put_eight(1u, share[1], local);
    put_eight(2u, share[2], local);
    put_eight(3u, share[3], local);
    if LATENT_SHARE > 4u {
        put_eight(4u, share[4], local);
        put_eight(5u, share[5], local);
        put_eight(6u, share[6], local);
        put_eight(7u, share[7], local);
    }
}

// SIDE columns of the right factor for a step's columns that begin at k, beginning at column `at` of the tile. Matrices
// may only be loaded in uniform control flow, for example under a condition in workgroup memory.
fn right(at: u32, k: u32) -> Right {
    let pitch = PITCH / CELL;
    let from_values = (at * PITCH + k) / CELL;
    let from_keys = (k * PITCH + at) / CELL;
    if tile.z == 1u {
        return coopLoadT<Right>(&rows[from_keys], pitch);
    }
    return coopLoad<Right>(&rows[from_values], pitch);
}

fn left(row: u32, k: u32) -> Left {
    let pitch = PITCH / CELL;
    let at = (row * PITCH + k) / CELL;
    return coopLoadT<Left>(&vectors[at], pitch);
}

// Four neighbouring sums as f16.
fn four_halves(at: u32) -> vec2<u32> {
    let four = vec4<f32>(sums[at], sums[at + 1u], sums[at + 2u], sums[at + 3u]) / WEIGHT_UNIT;
    return vec2<u32>(pack2x16float(four.xy), pack2x16float(four.zw));
}

// Writes the sums of SIDE KV rows, beginning at `row` of the tile, and of ABREAST matrices, beginning at `column` of
// keys or values of `width` columns. Their `count` KV rows begin at `to` in memory. The last one is repeated up to a
// multiple of sixteen, so that all rows of attention's tiles are finite.
fn leave(row: u32, column: u32, width: u32, to: u32, count: u32, local: u32) {
    let lane = local % 32u;
    let at = row + lane / (ABREAST * SIDE / 8u);
    let chunk = column / 8u + lane % (ABREAST * SIDE / 8u);
    if at < (count + 15u) / 16u * 16u && 8u * chunk < width {
        let first = local / 32u * ABREAST * SIDE * SIDE + 8u * lane;
        expanded[to + at * EXPANDED_CHUNKS + chunk] =
            vec4<u32>(four_halves(first), four_halves(first + 4u));
    }
}

// The same for RIGHTS matrices, ABREAST at a time.
fn leave_row(
    s0: Sums, s1: Sums, s2: Sums, s3: Sums, row: u32, column: u32, width: u32, to: u32, count: u32, local: u32,
) {
    let pitch = ABREAST * SIDE;
    let first = local / 32u * ABREAST * SIDE * SIDE;
    let second = first + SIDE;
    let third = first + 2u * SIDE;
    let fourth = first + 3u * SIDE;
    workgroupBarrier();
    coopStoreT(s0, &sums[first], pitch);
    if ABREAST > 1u { coopStoreT(s1, &sums[second], pitch); }
    if ABREAST > 2u { coopStoreT(s2, &sums[third], pitch); }
    if ABREAST > 2u { coopStoreT(s3, &sums[fourth], pitch); }
    workgroupBarrier();
    leave(row, column, width, to, count, local);
    if ABREAST == 1u {
        workgroupBarrier();
        coopStoreT(s1, &sums[first], pitch);
        workgroupBarrier();
        leave(row, column + SIDE, width, to, count, local);
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let workgroup = in_grid(id); // x: tiles of a segment; y: heads, and tiles of keys and values of each; z: segments
    let first = workgroup.x * TOKENS; // of the segment
    let head = workgroup.y / (KEY_TILES + VALUE_TILES);
    let part = workgroup.y % (KEY_TILES + VALUE_TILES);
    let is_key = part < KEY_TILES;
    let start = workgroup.z * SEGMENT + first;
    let count = min(TOKENS, max(batch.longest, start) - start);
    let first_place = kv_place(first_page_of(0u), min(start, batch.longest - 1u));
    tile = vec4<u32>(count, first_place, select(0u, 1u, is_key), 0u);
    let found = workgroupUniformLoad(&tile);
    if found.x == 0u {
        return;
    }
    let row = select(part - KEY_TILES, part, is_key) * ROWS;
    let to = expanded_at(head, first);
    if part == 0u {
        for (var n = local; n < (found.x + 15u) / 16u * 16u * ROTARY / 8u; n += WORKGROUP) {
            let at = n / (ROTARY / 8u);
            let chunk = n % (ROTARY / 8u);
            let place = found.y + min(at, found.x - 1u);
            expanded[to + at * EXPANDED_CHUNKS + NOPE / 8u + chunk] = rotary_eight(place, chunk);
        }
    }
    let subgroup = local / 32u;
    let down = subgroup / 2u * 4u * SIDE; // its KV rows of the tile
    let across = subgroup % 2u * 32u;      // and its columns
    // Separate variables, because drivers keep arrays of matrices in slow memory.
    var s00 = Sums(); var s01 = Sums(); var s02 = Sums(); var s03 = Sums();
    var s10 = Sums(); var s11 = Sums(); var s12 = Sums(); var s13 = Sums();
    var s20 = Sums(); var s21 = Sums(); var s22 = Sums(); var s23 = Sums();
    var s30 = Sums(); var s31 = Sums(); var s32 = Sums(); var s33 = Sums();
    var weights = raw(is_key, head, row, 0u, local);
    var share = latents_of(found, 0u, local);
    for (var column = 0u; column < RANK; column += STEP) {
        put_raw(is_key, weights, local);
        put_latents(share, local);
        workgroupBarrier();
        let next = min(column + STEP, RANK - STEP);
        weights = raw(is_key, head, row, next, local);
        share = latents_of(found, next, local);
        for (var k = 0u; k < STEP; k += SIDE) {
            let b0 = right(across, k);
            let b1 = right(across + SIDE, k);
            var b2: Right;
            var b3: Right;
            if RIGHTS > 2u { b2 = right(across + 2u * SIDE, k); }
            if RIGHTS > 2u { b3 = right(across + 3u * SIDE, k); }
            let a0 = left(down, k);
            s00 = coopMultiplyAdd(a0, b0, s00);
            s01 = coopMultiplyAdd(a0, b1, s01);
            if RIGHTS > 2u { s02 = coopMultiplyAdd(a0, b2, s02); }
            if RIGHTS > 2u { s03 = coopMultiplyAdd(a0, b3, s03); }
            let a1 = left(down + SIDE, k);
            s10 = coopMultiplyAdd(a1, b0, s10);
            s11 = coopMultiplyAdd(a1, b1, s11);
            if RIGHTS > 2u { s12 = coopMultiplyAdd(a1, b2, s12); }
            if RIGHTS > 2u { s13 = coopMultiplyAdd(a1, b3, s13); }
            let a2 = left(down + 2u * SIDE, k);
            s20 = coopMultiplyAdd(a2, b0, s20);
            s21 = coopMultiplyAdd(a2, b1, s21);
            if RIGHTS > 2u { s22 = coopMultiplyAdd(a2, b2, s22); }
            if RIGHTS > 2u { s23 = coopMultiplyAdd(a2, b3, s23); }
            let a3 = left(down + 3u * SIDE, k);
            s30 = coopMultiplyAdd(a3, b0, s30);
            s31 = coopMultiplyAdd(a3, b1, s31);
            if RIGHTS > 2u { s32 = coopMultiplyAdd(a3, b2, s32); }
            if RIGHTS > 2u { s33 = coopMultiplyAdd(a3, b3, s33); }
        }
        workgroupBarrier(); // everything is read before the next step overwrites it
    }
    let width = select(VALUE, NOPE, is_key);
    let place = select(to + KEY_CHUNKS, to, is_key);
    leave_row(s00, s01, s02, s03, down, row + across, width, place, found.x, local);
    leave_row(s10, s11, s12, s13, down + SIDE, row + across, width, place, found.x, local);
    leave_row(s20, s21, s22, s23, down + 2u * SIDE, row + across, width, place, found.x, local);
    leave_row(s30, s31, s32, s33, down + 3u * SIDE, row + across, width, place, found.x, local);
}
