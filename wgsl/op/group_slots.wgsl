// Brings a chunk's slots, TOP_K a token, in order of their experts, each expert's in their own order, and cuts each
// expert's into tiles. A workgroup an expert: all count alike, and none waits for another.

const RUN = (SLOTS + WORKGROUP - 1u) / WORKGROUP; // slots that an invocation ranks

var<storage, read> ids: array<u32>;              // [slot]: its expert
var<storage, read_write> slots: array<u32>;      // by expert
var<storage, read_write> tiles: array<vec4<u32>>; // expert, first place in slots, places

var<workgroup> counts: array<atomic<u32>, EXPERTS>;
var<workgroup> sums: array<vec4<u32>, WORKGROUP>;

fn tiles_for(count: u32) -> u32 {
    return (count + TILE_TOKENS - 1u) / TILE_TOKENS;
}

// The sums over this invocation and all before it. For the whole workgroup.
fn summed(mine: vec4<u32>, local: u32) -> vec4<u32> {
    var sum = mine;
    for (var apart = 1u; apart < WORKGROUP; apart *= 2u) {
        sums[local] = sum;
        workgroupBarrier();
        if local >= apart {
            sum += sums[local - apart];
        }
        workgroupBarrier();
    }
    sums[local] = sum;
    workgroupBarrier();
    return sum;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let expert = workgroup.x;
    let live = min(batch.count * TOP_K, SLOTS);
    for (var e = local; e < EXPERTS; e += WORKGROUP) {
        atomicStore(&counts[e], 0u);
    }
    workgroupBarrier();
    for (var slot = local; slot < live; slot += WORKGROUP) {
        atomicAdd(&counts[ids[slot]], 1u);
    }
    workgroupBarrier();

    // x: this expert's slots, y and z: slots and tiles of those before it.
    var mine = vec4<u32>(0u);
    let end = min((local + 1u) * RUN, live);
    for (var slot = local * RUN; slot < end; slot++) {
        mine.x += select(0u, 1u, ids[slot] == expert);
    }
    for (var e = local; e < expert; e += WORKGROUP) {
        let count = atomicLoad(&counts[e]);
        mine += vec4<u32>(0u, count, tiles_for(count), 0u);
    }
    var place = summed(mine, local).x - mine.x;
    let all = sums[WORKGROUP - 1u];
    for (var slot = local * RUN; slot < end; slot++) {
        if ids[slot] == expert {
            slots[all.y + place] = slot;
            place++;
        }
    }
    let own = tiles_for(all.x);
    for (var n = local; n < own; n += WORKGROUP) {
        let first = n * TILE_TOKENS;
        tiles[all.z + n] = vec4<u32>(expert, all.y + first, min(all.x - first, TILE_TOKENS), 0u);
    }
    if expert == EXPERTS - 1u {
        for (var n = all.z + own + local; n < TILES; n += WORKGROUP) {
            tiles[n] = vec4<u32>(0u);
        }
    }
}
