// The products of a tile whose weights have the role w: what the invocations load, the sums, and their results. See
// op/mul_mm.wgsl.

// Places past the last vector repeat it, so that no load leaves the batch.
fn w_share_of(tile: Tile, matrix: u32, group: u32, local: u32) -> Share {
    var share: Share;
    share.row = w_staged_group(tile, matrix, min(local, TILE_ROWS - 1u), group);
    for (var i = 0u; i < VECTOR_SHARE; i++) {
        let n = local + i * WORKGROUP;
        share.vectors[i] = x[input_at(tile, min(n / 8u, tile.places - 1u)) + 8u * group + n % 8u];
    }
    return share;
}

// Multiplies a part of the columns of a matrix of the stack. Called by the whole workgroup.
fn w_multiply(tile: Tile, matrix: u32, part: u32, local: u32) {
    let lane = local % SIDE;
    let first = 4u * (local / SIDE); // of the invocation's places
    var sums: array<vec4<f32>, ROWS>; // [staged row][place]
    var group = part * w_GROUPS / PARTS;
    let end = (part + 1u) * w_GROUPS / PARTS;
    var share = w_share_of(tile, matrix, group, local);
    for (; group < end; group++) {
        put(share, local);
        workgroupBarrier();
        share = w_share_of(tile, matrix, min(group + 1u, end - 1u), local); // loading while this group is multiplied
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
