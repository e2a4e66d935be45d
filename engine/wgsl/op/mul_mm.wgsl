// Products of a tile: TILE_TOKENS vectors with TILE_ROWS staged rows. Both are staged in workgroup memory one group of
// 32 at a time, and weights are decoded once; an invocation multiplies four vectors with ROWS rows, SIDE apart, in
// registers. PARTS workgroups share a tile, each for a part of the columns; if there are several, each writes its own
// sums.

const VECTOR_SHARE = 8u * TILE_TOKENS / WORKGROUP; // vec4s of a group that an invocation loads

var<storage, read> x: array<vec4<f32>>;
var<storage, read_write> y: array<f32>;

var<workgroup> rows: array<vec4<f32>, 8u * TILE_ROWS>;      // [vec4 of the group][staged row]
var<workgroup> vectors: array<vec4<f32>, 8u * TILE_TOKENS>; // [vec4 k of the group][place ^ k]: spread over the banks

// An invocation's share of a group.
struct Share {
    row: array<vec4<f32>, 8>,
    vectors: array<vec4<f32>, VECTOR_SHARE>,
}

fn put(share: Share, local: u32) {
    if local < TILE_ROWS {
        for (var k = 0u; k < 8u; k++) {
            rows[k * TILE_ROWS + local] = share.row[k];
        }
    }
    for (var i = 0u; i < VECTOR_SHARE; i++) {
        let n = local + i * WORKGROUP;
        vectors[n % 8u * TILE_TOKENS + (n / 8u ^ n % 8u)] = share.vectors[i];
    }
}

fn vector(k: u32, place: u32) -> vec4<f32> {
    return vectors[k * TILE_TOKENS + (place ^ k)];
}

// The matrix of the workgroup's tile.
fn matrix_of(tile: Tile) -> u32 {
    return tile.matrix;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let at = in_grid(workgroup);
    if extra_work(at, local) {
        return;
    }
    let part = at.z / STACKS;
    let tile = tile_of(vec3<u32>(at.xy, at.z % STACKS));
    if tile.places == 0u {
        return;
    }
    multiply(tile, part, local);
}
