// Sorts the slots of a batch, SLOTS for each row, by expert, keeping the order of an expert's slots, and divides each
// expert's slots into tiles. The last TOP_K slots of a row are for the experts that it selects. A row may have one
// more, its first, which is for the shared experts: they count as expert EXPERTS, but their tiles come first, after an
// entry with the number of these tiles and of all. Each workgroup is for one expert: all do the same counting, and none
// waits for another.

struct Params {
    places: u32,    // the maximum number of slots in a tile
    shared_tiles: u32, // the maximum number of tiles of the shared experts
    tiles: u32,     // the maximum number of tiles
}

var<uniform> params: Params;
var<storage, read> ids: array<u32>;              // [row][rank]: the selected experts
var<storage, read_write> slots: array<u32>;      // by expert
var<storage, read_write> tiles: array<vec4<u32>>; // expert, first index in `slots`, number of slots

const HEAD = SLOTS - TOP_K; // slots of a row before those of selected experts, and entries before the tiles
const BLOCK = 16u; // invocations whose counts are summed for those after them

var<workgroup> counts: array<atomic<u32>, EXPERTS>;
var<workgroup> runs: array<atomic<u32>, WORKGROUP>;           // this expert's slots that an invocation ranks
var<workgroup> blocks: array<atomic<u32>, WORKGROUP / BLOCK>; // the sums of BLOCK of these
var<workgroup> before: array<atomic<u32>, 2>;                 // slots and tiles of the experts before this one

fn tiles_for(count: u32) -> u32 {
    return (count + params.places - 1u) / params.places;
}

// The slot of a selected expert, counted over the rows.
fn slot_of(selected: u32) -> u32 {
    return selected / TOP_K * SLOTS + HEAD + selected % TOP_K;
}

// The sum of what the invocations before this one have written to `runs`.
fn run_start(local: u32) -> u32 {
    var sum = 0u;
    for (var block = 0u; block < local / BLOCK; block++) {
        sum += atomicLoad(&blocks[block]);
    }
    for (var i = local / BLOCK * BLOCK; i < local; i++) {
        sum += atomicLoad(&runs[i]);
    }
    return sum;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let expert = workgroup.x;
    let live = row_count() * TOP_K;
    let share = (live + WORKGROUP - 1u) / WORKGROUP; // slots that an invocation ranks
    for (var e = local; e < EXPERTS; e += WORKGROUP) {
        atomicStore(&counts[e], 0u);
    }
    if local < WORKGROUP / BLOCK {
        atomicStore(&blocks[local], 0u);
    }
    if local < 2u {
        atomicStore(&before[local], 0u);
    }
    workgroupBarrier();
    for (var n = local; n < live; n += WORKGROUP) {
        atomicAdd(&counts[ids[n]], 1u);
    }
    workgroupBarrier();

    var run = 0u; // this expert's slots among the invocation's
    let end = min((local + 1u) * share, live);
    for (var n = local * share; n < end; n++) {
        run += select(0u, 1u, ids[n] == expert);
    }
    atomicStore(&runs[local], run);
    atomicAdd(&blocks[local / BLOCK], run);
    for (var e = local; e < expert; e += WORKGROUP) {
        let count = atomicLoad(&counts[e]);
        atomicAdd(&before[0], count);
        atomicAdd(&before[1], tiles_for(count));
    }
    workgroupBarrier();
    let first_slot = atomicLoad(&before[0]);
    var first_tile = 0u;
    var count = row_count();
    if expert < EXPERTS {
        first_tile = params.shared_tiles + atomicLoad(&before[1]);
        count = atomicLoad(&counts[expert]);
        var place = first_slot + run_start(local);
        for (var n = local * share; n < end; n++) {
            if ids[n] == expert {
                slots[place] = slot_of(n);
                place++;
            }
        }
    } else {
        for (var row = local; row < count; row += WORKGROUP) {
            slots[first_slot + row] = row * SLOTS;
        }
        if local == 0u {
            tiles[0] = vec4<u32>(params.shared_tiles, params.tiles, 0u, 0u);
        }
    }
    let own = tiles_for(count);
    for (var n = local; n < own; n += WORKGROUP) {
        let first = n * params.places;
        tiles[HEAD + first_tile + n] = vec4<u32>(expert, first_slot + first, min(count - first, params.places), 0u);
    }
    if expert >= EXPERTS - 1u { // the rest of the tiles is not needed
        let last = select(params.shared_tiles, params.tiles, expert < EXPERTS);
        for (var n = first_tile + own + local; n < last; n += WORKGROUP) {
            tiles[HEAD + n] = vec4<u32>(0u);
        }
    }
}
