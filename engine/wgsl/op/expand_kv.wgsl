// Expands the KV rows of a segment to the keys and values of all heads, in f16. A value is v · latent, with the matrix
// v {RANK, VALUE} of its head; a key is the transpose of its head's k {NOPE, RANK} times the latent, Σ k[r] ·
// latent[r], followed by the rotary key that all heads share.
//
// A workgroup computes COLUMNS columns of keys or of values for TOKENS KV rows, an invocation four of each, in
// registers. STEP values of the latents are staged in workgroup memory at a time, with the weights that multiply them,
// decoded once. Both are in chunks of four along the sum, except the weights of keys, whose chunks are of four columns,
// as in the file. So the same four chunks of weights are the rows of a square for keys, and its columns for values.

const STEP = 32u;
const COLUMNS = 64u;
const TOKENS = 64u;
const SIDE = COLUMNS / 4u; // invocations side by side
const KEY_TILES = (NOPE + COLUMNS - 1u) / COLUMNS;
const VALUE_TILES = (VALUE + COLUMNS - 1u) / COLUMNS;
const LAST_STEP = (RANK - 1u) / STEP * STEP;
const WRITTEN = (KEY + VALUE) / 4u; // chunks of an expanded KV row
const LATENT_SHARE = TOKENS * STEP / 4u / WORKGROUP; // chunks of a step that an invocation loads

var<storage, read> cache: array<CacheElement>;
var<storage, read_write> expanded: array<vec2<u32>>; // chunks of four f16

var<workgroup> weights: array<vec4<f32>, COLUMNS * STEP / 4u>; // keys: [value of the latent][chunk of columns]
var<workgroup> latents: array<vec4<f32>, TOKENS * STEP / 4u>;  // [chunk k][KV row ^ k]: spread over the banks

// What a workgroup computes.
struct Tile {
    is_key: bool,
    head: u32,
    row: u32,   // first column of keys or values
    first: u32, // first KV row, of the segment
    count: u32, // KV rows
    place: u32, // of the first in the pool
}

// An invocation's share of a step.
struct Share {
    weights: array<vec4<f32>, 8>,
    latents: array<vec4<f32>, LATENT_SHARE>,
}

// Columns past the last repeat one, and so do KV rows. Zeros follow the values of the latent.
fn share_of(tile: Tile, column: u32, local: u32) -> Share {
    var share: Share;
    if local < COLUMNS {
        if tile.is_key {
            let group = min(tile.row / 32u + local % 2u, k_GROUPS - 1u);
            share.weights = k_decode((tile.head * RANK + min(column + local / 2u, RANK - 1u)) * k_GROUPS + group);
        } else {
            let row = tile.head * VALUE + min(tile.row + local, VALUE - 1u);
            share.weights = v_decode(row * v_GROUPS + column / 32u);
        }
    }
    for (var i = 0u; i < LATENT_SHARE; i++) {
        let n = local + i * WORKGROUP;
        let place = tile.place + min(n / 8u, tile.count - 1u);
        let chunk = column / 4u + n % 8u;
        let held = min(chunk, LATENT - 1u);
        let latent = cache_unpacked(cache_chunk(place, held), held);
        share.latents[i] = select(vec4<f32>(0.0), latent, chunk < LATENT);
    }
    return share;
}

// Lane `lane` of SIDE computes four adjacent columns. In each square of four chunks, chunk i is the i-th value of the
// latent for keys, and the i-th column for values.
fn put(share: Share, is_key: bool, local: u32) {
    if local < COLUMNS {
        for (var k = 0u; k < 8u; k++) {
            let of_key = 8u * local + k;
            let of_value = k * COLUMNS + local % 4u * SIDE + local / 4u;
            weights[select(of_value, of_key, is_key)] = share.weights[k];
        }
    }
    for (var i = 0u; i < LATENT_SHARE; i++) {
        let n = local + i * WORKGROUP;
        latents[n % 8u * TOKENS + (n / 8u ^ n % 8u)] = share.latents[i];
    }
}

// Four values as f16.
fn written_out(v: vec4<f32>) -> vec2<u32> {
    return vec2<u32>(pack2x16float(v.xy), pack2x16float(v.zw));
}

// A square of four chunks of weights times chunk k of the latents of a KV row.
fn product(square: mat4x4<f32>, k: u32, row: u32, is_key: bool) -> vec4<f32> {
    let latent = latents[k * TOKENS + (row ^ k)];
    if is_key {
        return square * latent;
    }
    return latent * square;
}

fn tile_of(workgroup: vec3<u32>) -> Tile {
    let first = workgroup.x * TOKENS;
    let part = workgroup.y % (KEY_TILES + VALUE_TILES);
    let is_key = part < KEY_TILES;
    let row = select(part - KEY_TILES, part, is_key) * COLUMNS;
    let start = workgroup.z * SEGMENT + first;
    let count = min(TOKENS, max(batch.longest, start) - start);
    let place = kv_place(first_page_of(0u), min(start, batch.longest - 1u));
    return Tile(is_key, workgroup.y / (KEY_TILES + VALUE_TILES), row, first, count, place);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    // x: tiles of a segment; y: heads, and tiles of keys and values of each; z: segments
    let tile = tile_of(in_grid(id));
    if tile.count == 0u {
        return;
    }
    let written = (tile.count + 15u) / 16u * 16u; // the last KV row is repeated
    let to = (tile.head * SEGMENT + tile.first) * WRITTEN;
    if tile.is_key && tile.row == 0u {
        for (var n = local; n < written * ROTARY / 4u; n += WORKGROUP) {
            let at = n / (ROTARY / 4u);
            let chunk = n % (ROTARY / 4u);
            let place = tile.place + min(at, tile.count - 1u); // of the rotary key, which is f16 already
            expanded[to + at * WRITTEN + NOPE / 4u + chunk] = cache_chunk(place, LATENT + chunk);
        }
    }
    let lane = local % SIDE;
    let own = 4u * (local / SIDE); // first of the invocation's KV rows
    var sum0 = vec4<f32>(0.0); // of a KV row each
    var sum1 = vec4<f32>(0.0);
    var sum2 = vec4<f32>(0.0);
    var sum3 = vec4<f32>(0.0);
    var share = share_of(tile, 0u, local);
    for (var column = 0u; column < RANK; column += STEP) {
        put(share, tile.is_key, local);
        workgroupBarrier();
        share = share_of(tile, min(column + STEP, LAST_STEP), local); // loading while this step is multiplied
        for (var k = 0u; k < STEP / 4u; k++) {
            let at = k * COLUMNS + lane;
            let square =
                mat4x4<f32>(weights[at], weights[at + SIDE], weights[at + 2u * SIDE], weights[at + 3u * SIDE]);
            sum0 += product(square, k, own, tile.is_key);
            sum1 += product(square, k, own + 1u, tile.is_key);
            sum2 += product(square, k, own + 2u, tile.is_key);
            sum3 += product(square, k, own + 3u, tile.is_key);
        }
        workgroupBarrier(); // everything is read before the next step overwrites it
    }
    let width = select(VALUE, NOPE, tile.is_key);
    let begin = to + own * WRITTEN + select(KEY / 4u, 0u, tile.is_key) + tile.row / 4u + lane;
    if tile.row + 4u * lane < width {
        if own < written { expanded[begin] = written_out(sum0); }
        if own + 1u < written { expanded[begin + WRITTEN] = written_out(sum1); }
        if own + 2u < written { expanded[begin + 2u * WRITTEN] = written_out(sum2); }
        if own + 3u < written { expanded[begin + 3u * WRITTEN] = written_out(sum3); }
    }
}
