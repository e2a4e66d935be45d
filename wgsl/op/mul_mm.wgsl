// Products of a tile: TILE_TOKENS vectors with 64 staged rows. Both come to workgroup memory a group of 32 at a
// time, the weights decoded once; an invocation multiplies four vectors with four rows, sixteen apart, in
// registers.

const TILE_ROWS = 64u;
const ROW_PITCH = TILE_ROWS + 1u;      // of a plane, so that planes fall on other banks
const PLACE_PITCH = TILE_TOKENS + 1u;

var<storage, read> x: array<vec4<f32>>;
var<storage, read_write> y: array<f32>;

var<workgroup> rows: array<vec4<f32>, 8u * ROW_PITCH>;     // [vec4 of the group][staged row]
var<workgroup> vectors: array<vec4<f32>, 8u * PLACE_PITCH>; // [vec4 of the group][place]

// Stages group `group` of the tile. Places without a token repeat the last, so that no load leaves the chunk.
fn stage(tile: Tile, group: u32, local: u32) {
    for (var r = local; r < TILE_ROWS; r += WORKGROUP) {
        var values = staged_group(tile, r, group);
        for (var k = 0u; k < 8u; k++) {
            rows[k * ROW_PITCH + r] = values[k];
        }
    }
    for (var n = local; n < 8u * TILE_TOKENS; n += WORKGROUP) {
        let place = n / 8u;
        let k = n % 8u;
        vectors[k * PLACE_PITCH + place] = x[input_at(tile, min(place, tile.places - 1u)) + 8u * group + k];
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let tile = tile_of(workgroup);
    if tile.places == 0u {
        return;
    }
    let lane = local % 16u;
    let first = 4u * (local / 16u); // of the invocation's places
    var sums: array<vec4<f32>, 4>;  // [staged row][place]
    for (var group = 0u; group < GROUPS; group++) {
        stage(tile, group, local);
        workgroupBarrier();
        for (var k = 0u; k < 8u; k++) {
            let at = k * PLACE_PITCH + first;
            let v = mat4x4<f32>(vectors[at], vectors[at + 1u], vectors[at + 2u], vectors[at + 3u]);
            for (var i = 0u; i < 4u; i++) {
                sums[i] += rows[k * ROW_PITCH + 16u * i + lane] * v;
            }
        }
        workgroupBarrier();
    }
    for (var j = 0u; j < min(4u, max(tile.places, first) - first); j++) {
        leave(tile, first + j, 0u, lane, sums[0][j], sums[1][j]);
        leave(tile, first + j, 1u, lane, sums[2][j], sums[3][j]);
    }
}
