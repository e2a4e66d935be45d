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

// Places past the last vector repeat it, so that no load leaves the batch.
fn share_of(tile: Tile, group: u32, local: u32) -> Share {
    var share: Share;
    share.row = staged_group(tile, min(local, TILE_ROWS - 1u), group);
    for (var i = 0u; i < VECTOR_SHARE; i++) {
        let n = local + i * WORKGROUP;
        share.vectors[i] = x[input_at(tile, min(n / 8u, tile.places - 1u)) + 8u * group + n % 8u];
    }
    return share;
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

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let at = in_grid(workgroup);
    let part = at.z / STACKS;
    let tile = tile_of(vec3<u32>(at.xy, at.z % STACKS));
    if tile.places == 0u {
        return;
    }
    let lane = local % SIDE;
    let first = 4u * (local / SIDE); // of the invocation's places
    var sums: array<vec4<f32>, ROWS>; // [staged row][place]
    var group = part * w_GROUPS / PARTS;
    let end = (part + 1u) * w_GROUPS / PARTS;
    var share = share_of(tile, group, local);
    for (; group < end; group++) {
        put(share, local);
        workgroupBarrier();
        share = share_of(tile, min(group + 1u, end - 1u), local); // loading while this group is multiplied
        for (var k = 0u; k < 8u; k++) {
            let v = mat4x4<f32>(vector(k, first), vector(k, first + 1u), vector(k, first + 2u), vector(k, first + 3u));
            for (var i = 0u; i < ROWS; i++) {
                sums[i] += rows[k * TILE_ROWS + SIDE * i + lane] * v;
            }
        }
        workgroupBarrier();
    }
    for (var j = 0u; j < min(4u, max(tile.places, first) - first); j++) {
        if PARTS > 1u {
            let to = output_at(tile, first + j) + part * STACKS * Y_STRIDE + tile.row + lane;
            for (var i = 0u; i < ROWS; i++) {
                y[to + SIDE * i] = sums[i][j];
            }
            continue;
        }
        for (var pair = 0u; pair < ROWS / 2u; pair++) {
            leave(tile, first + j, pair, lane, sums[2u * pair][j], sums[2u * pair + 1u][j]);
        }
    }
}
