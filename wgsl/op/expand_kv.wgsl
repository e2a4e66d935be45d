// The keys and values of all heads for the KV rows of a segment, written out in f16, by cooperative matrices of 16 by
// 16. A value is v · latent, with the matrix v {RANK, VALUE} of its head; a key is the transpose of its head's k
// {NOPE, RANK} times the latent, Σ k[r] · latent[r], and behind it the rotary key that all heads share.
//
// A workgroup computes ROWS columns of TOKENS keys or values, which are 64 and 128. It stages STEP values of the
// latents at a time, with the weights that multiply them: those of values as [row][column], as they come; those of
// keys, whose rows are what is summed over, as [column][row]. Subgroups each sum 64 by 32.

const STEP = 64u;
const PITCH = STEP / 4u + 2u; // of a staged row in chunks of four, so that rows fall on other banks
const TOKENS = 128u;
const ROWS = 64u;
const KEY_TILES = (NOPE + ROWS - 1u) / ROWS;
const VALUE_TILES = (VALUE + ROWS - 1u) / ROWS;
const LATENT_SHARE = TOKENS * STEP / 8u / WORKGROUP; // chunks of a step that an invocation brings

var<storage, read_write> expanded: array<vec4<u32>>;

// Matrices are loaded from multiples of 16 bytes: each array is of so many bytes that the next is at such a place.
var<workgroup> latents: array<vec4<f16>, TOKENS * PITCH>; // [KV row][column]
var<workgroup> rows: array<vec4<f16>, ROWS * PITCH>;
var<workgroup> sums: array<vec4<f32>, SUBGROUPS * 64u>;
var<workgroup> tile: vec4<u32>; // KV rows of it; where they begin in the pool; 1 if it is of keys, 0 of values

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
        rows[local / 2u * PITCH + local % 2u * 8u + i] = halves[i].xzyw;
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
        let at = n / (STEP / 8u) * PITCH + 2u * (n % (STEP / 8u));
        latents[at] = first_of_eight(share[i]);
        latents[at + 1u] = second_of_eight(share[i]);
    }
}

// Sixteen columns of what multiplies a step's columns from k on, from column `at` of the tile on. Matrices are loaded
// only where all invocations are sure to come, as where a value in workgroup memory decides.
fn right(at: u32, k: u32) -> Right {
    let pitch = PITCH;
    let from_values = at * PITCH + k / 4u;
    let from_keys = k * PITCH + at / 4u;
    if tile.z == 1u {
        return coopLoadT<Right>(&rows[from_keys], pitch);
    }
    return coopLoad<Right>(&rows[from_values], pitch);
}

fn left(row: u32, k: u32) -> Left {
    let pitch = PITCH;
    let at = row * PITCH + k / 4u;
    return coopLoadT<Left>(&latents[at], pitch);
}

// Writes sums of sixteen KV rows from `row` of the tile on, and of sixteen columns from `column` of keys or values on,
// of which there are `width`. Their KV rows begin at `to` in memory, and there are `count` of them; behind the last it is
// repeated up to a multiple of sixteen, so that attention finds numbers in all rows of its tiles.
fn leave(sum: Sums, row: u32, column: u32, width: u32, to: u32, count: u32, local: u32) {
    let scratch = local / 32u * 64u;
    let pitch = 4u;
    workgroupBarrier();
    coopStoreT(sum, &sums[scratch], pitch);
    workgroupBarrier();
    let at = row + local % 32u / 2u;
    let chunk = column / 8u + local % 2u;
    if at < (count + 15u) / 16u * 16u && 8u * chunk < width {
        let first = scratch + 2u * (local % 32u);
        let low = held(sums[first]);
        let high = held(sums[first + 1u]);
        expanded[to + at * EXPANDED_CHUNKS + chunk] = vec4<u32>(
            pack2x16float(low.xy), pack2x16float(low.zw), pack2x16float(high.xy), pack2x16float(high.zw),
        );
    }
}

// What f16 can hold of a sum.
fn held(v: vec4<f32>) -> vec4<f32> {
    return clamp(v / WEIGHT_UNIT, vec4<f32>(-65504.0), vec4<f32>(65504.0));
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let workgroup = in_grid(id); // x: tiles of a segment; y: heads, and tiles of keys and values of each; z: segments
    let first = workgroup.x * TOKENS; // of the segment
    let head = workgroup.y / (KEY_TILES + VALUE_TILES);
    let part = workgroup.y % (KEY_TILES + VALUE_TILES);
    let is_key = part < KEY_TILES;
    if local == 0u {
        let start = workgroup.z * SEGMENT + first;
        let count = min(TOKENS, max(batch.longest, start) - start);
        let place = kv_place(first_page_of(0u), min(start, batch.longest - 1u));
        tile = vec4<u32>(count, place, select(0u, 1u, is_key), 0u);
    }
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
    let down = subgroup / 2u * 64u;   // its KV rows of the tile
    let across = subgroup % 2u * 32u; // and its columns
    // Matrices by name: drivers keep arrays of them where they are slow.
    var s00 = Sums(); var s01 = Sums(); var s10 = Sums(); var s11 = Sums();
    var s20 = Sums(); var s21 = Sums(); var s30 = Sums(); var s31 = Sums();
    var weights = raw(is_key, head, row, 0u, local);
    var share = latents_of(found, 0u, local);
    for (var column = 0u; column < RANK; column += STEP) {
        put_raw(is_key, weights, local);
        put_latents(share, local);
        workgroupBarrier();
        let next = min(column + STEP, RANK - STEP);
        weights = raw(is_key, head, row, next, local);
        share = latents_of(found, next, local);
        for (var k = 0u; k < STEP; k += 16u) {
            let b0 = right(across, k);
            let b1 = right(across + 16u, k);
            let a0 = left(down, k);
            s00 = coopMultiplyAdd(a0, b0, s00);
            s01 = coopMultiplyAdd(a0, b1, s01);
            let a1 = left(down + 16u, k);
            s10 = coopMultiplyAdd(a1, b0, s10);
            s11 = coopMultiplyAdd(a1, b1, s11);
            let a2 = left(down + 32u, k);
            s20 = coopMultiplyAdd(a2, b0, s20);
            s21 = coopMultiplyAdd(a2, b1, s21);
            let a3 = left(down + 48u, k);
            s30 = coopMultiplyAdd(a3, b0, s30);
            s31 = coopMultiplyAdd(a3, b1, s31);
        }
        workgroupBarrier(); // all is read before the next step overwrites it
    }
    let width = select(VALUE, NOPE, is_key);
    let place = select(to + KEY_CHUNKS, to, is_key);
    leave(s00, down, row + across, width, place, found.x, local);
    leave(s01, down, row + across + 16u, width, place, found.x, local);
    leave(s10, down + 16u, row + across, width, place, found.x, local);
    leave(s11, down + 16u, row + across + 16u, width, place, found.x, local);
    leave(s20, down + 32u, row + across, width, place, found.x, local);
    leave(s21, down + 32u, row + across + 16u, width, place, found.x, local);
    leave(s30, down + 48u, row + across, width, place, found.x, local);
    leave(s31, down + 48u, row + across + 16u, width, place, found.x, local);
}
