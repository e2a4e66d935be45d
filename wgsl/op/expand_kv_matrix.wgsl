// The keys and values of all heads for the KV rows of a segment, as in op/expand_kv.wgsl, by cooperative matrices of SIDE
// x SIDE, which are loaded as products load theirs.
//
// A workgroup computes ROWS columns of TOKENS keys or values, which are 64 and 8 times SIDE. It stages STEP values of the
// latents at a time, with the weights that multiply them: those of values as [row][column], as they come; those of
// keys, whose rows are what is summed over, as [column][row]. Subgroups each sum 4 by RIGHTS matrices, of 32 columns.

const STEP = 64u;
const PITCH = STEP + 8u; // of a staged row, so that rows fall on other banks
const TOKENS = 8u * SIDE;
const ROWS = 64u;
const RIGHTS = 32u / SIDE;
const KEY_TILES = (NOPE + ROWS - 1u) / ROWS;
const VALUE_TILES = (VALUE + ROWS - 1u) / ROWS;
const LATENT_SHARE = TOKENS * STEP / 8u / WORKGROUP; // chunks of a step that an invocation brings

var<storage, read_write> expanded: array<vec4<u32>>;

// Matrices are loaded from multiples of 16 bytes: each array is of so many bytes that the next is at such a place.
var<workgroup> vectors: array<Cell, TOKENS * PITCH / CELL>; // latents: [KV row][column]
var<workgroup> rows: array<Cell, ROWS * PITCH / CELL>;
var<workgroup> sums: array<f32, SUBGROUPS * SIDE * SIDE>;
// KV rows of the tile; where they begin in the pool; 1 if it is of keys, 0 of values. Every invocation writes it for itself.
var<workgroup> tile: vec4<u32>;

// The group that an invocation brings of the weights of a step from `column` on, of those for columns from `row` on.
fn raw(is_key: bool, head: u32, row: u32, column: u32, local: u32) -> array<vec4<u32>, 4> {
    let along = local / 2u; // rows of what is staged
    let group = local % 2u;
    if is_key {
        let of_row = min(row / 32u + group, k_GROUPS - 1u);
        return k_raw((head * RANK + column + along) * k_GROUPS + of_row);
    }
    return v_raw((head * VALUE + min(row + along, VALUE - 1u)) * v_GROUPS + column / 32u + group);
}

// Puts it there; four of its values lie as 0, 2, 1, 3.
fn put_raw(is_key: bool, raw: array<vec4<u32>, 4>, local: u32) {
    var halves: array<vec4<f16>, 8>;
    if is_key {
        halves = k_halves(raw);
    } else {
        halves = v_halves(raw);
    }
    for (var i = 0u; i < 8u; i++) {
        put_row(local / 2u * PITCH + local % 2u * 32u + 4u * i, halves[i].xzyw);
    }
}

// What an invocation brings of the latents from `column` on.
fn latents_of(found: vec4<u32>, column: u32, local: u32) -> array<vec4<u32>, LATENT_SHARE> {
    var share: array<vec4<u32>, LATENT_SHARE>;
    for (var i = 0u; i < LATENT_SHARE; i++) {
        let n = local + i * WORKGROUP;
        let place = found.y + min(n / (STEP / 8u), found.x - 1u);
        share[i] = latent_eight(place, column / 8u + n % (STEP / 8u));
    }
    return share;
}

fn put_latents(share: array<vec4<u32>, LATENT_SHARE>, local: u32) {
    for (var i = 0u; i < LATENT_SHARE; i++) {
        let n = local + i * WORKGROUP;
        let at = n / (STEP / 8u) * PITCH + 8u * (n % (STEP / 8u));
        put_vector(at, first_of_eight(share[i]));
        put_vector(at + 4u, second_of_eight(share[i]));
    }
}

// SIDE columns of what multiplies a step's columns from k on, from column `at` of the tile on. Matrices are loaded
// only where all invocations are sure to come, as where a value in workgroup memory decides.
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

// What f16 can hold of two neighbouring sums.
fn held(at: u32) -> u32 {
    let both = vec2<f32>(sums[at], sums[at + 1u]) / WEIGHT_UNIT;
    return pack2x16float(clamp(both, vec2<f32>(-65504.0), vec2<f32>(65504.0)));
}

// Writes sums of SIDE KV rows from `row` of the tile on, and of as many columns from `column` on of keys or values,
// of which there are `width`. Their KV rows begin at `to` in memory, and there are `count` of them; behind the last it is
// repeated up to a multiple of sixteen, so that attention finds numbers in all rows of its tiles.
fn leave(sum: Sums, row: u32, column: u32, width: u32, to: u32, count: u32, local: u32) {
    let scratch = local / 32u * SIDE * SIDE;
    let pitch = SIDE;
    workgroupBarrier();
    coopStoreT(sum, &sums[scratch], pitch);
    workgroupBarrier();
    let lane = local % 32u;
    let at = row + lane / (SIDE / 8u);
    let chunk = column / 8u + lane % (SIDE / 8u);
    if lane < SIDE * SIDE / 8u && at < (count + 15u) / 16u * 16u && 8u * chunk < width {
        let first = scratch + 8u * lane;
        expanded[to + at * EXPANDED_CHUNKS + chunk] =
            vec4<u32>(held(first), held(first + 2u), held(first + 4u), held(first + 6u));
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
    // Matrices by name: drivers keep arrays of them where they are slow.
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
        workgroupBarrier(); // all is read before the next step overwrites it
    }
    let width = select(VALUE, NOPE, is_key);
    let place = select(to + KEY_CHUNKS, to, is_key);
    leave(s00, down, row + across, width, place, found.x, local);
    leave(s01, down, row + across + SIDE, width, place, found.x, local);
    if RIGHTS > 2u { leave(s02, down, row + across + 2u * SIDE, width, place, found.x, local); }
    if RIGHTS > 2u { leave(s03, down, row + across + 3u * SIDE, width, place, found.x, local); }
    leave(s10, down + SIDE, row + across, width, place, found.x, local);
    leave(s11, down + SIDE, row + across + SIDE, width, place, found.x, local);
    if RIGHTS > 2u { leave(s12, down + SIDE, row + across + 2u * SIDE, width, place, found.x, local); }
    if RIGHTS > 2u { leave(s13, down + SIDE, row + across + 3u * SIDE, width, place, found.x, local); }
    leave(s20, down + 2u * SIDE, row + across, width, place, found.x, local);
    leave(s21, down + 2u * SIDE, row + across + SIDE, width, place, found.x, local);
    if RIGHTS > 2u { leave(s22, down + 2u * SIDE, row + across + 2u * SIDE, width, place, found.x, local); }
    if RIGHTS > 2u { leave(s23, down + 2u * SIDE, row + across + 3u * SIDE, width, place, found.x, local); }
    leave(s30, down + 3u * SIDE, row + across, width, place, found.x, local);
    leave(s31, down + 3u * SIDE, row + across + SIDE, width, place, found.x, local);
    if RIGHTS > 2u { leave(s32, down + 3u * SIDE, row + across + 2u * SIDE, width, place, found.x, local); }
    if RIGHTS > 2u { leave(s33, down + 3u * SIDE, row + across + 3u * SIDE, width, place, found.x, local); }
}
