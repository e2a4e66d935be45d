// The vectors of a tile as the previous step wrote them: rounded to bytes, as lib/input_rounded.wgsl describes. They
// are staged in workgroup memory as they are, TILE groups of each at a time: neighbouring lanes then read different
// banks.

const GROUP_FOURS = GROUP_WORDS / 4u;
const TILE_FOURS = GROUP_FOURS * TILE;

var<storage, read> rounded_input: array<vec4<u32>>;

var<workgroup> gathered: array<vec4<u32>, PLACES * TILE_FOURS>; // [place][group]
// The bits of f32. They are atomic because compilers may assume that no other invocation writes what an invocation
// reads.
var<workgroup> factors: array<atomic<u32>, PLACES>;

// Stages groups first..first + groups of the vectors of the first `count` places. Called by the whole workgroup.
fn stage_places(count: u32, first: u32, groups: u32, local: u32) {
    for (var k = local; k < count * TILE_FOURS; k += WORKGROUP) {
        let at = k % TILE_FOURS;
        if at < GROUP_FOURS * groups {
            gathered[k] = rounded_input[start_of_place(k / TILE_FOURS) + GROUP_FOURS * first + at];
        }
    }
}

// Staged group g of a place.
fn group_of_place(place: u32, g: u32) -> Group {
    let at = place * TILE_FOURS + GROUP_FOURS * g;
    let scales = bitcast<vec4<f32>>(gathered[at + 2u]);
    return Group(gathered[at], gathered[at + 1u], scales.xy, scales.zw);
}

// Leaves the factors that a normed input does not include, of the first `count` places, for the whole workgroup, which
// calls this before a barrier. Each team computes one at a time, because sums are for whole subgroups.
fn leave_factors(count: u32, team: Team) {
    if !NORMED {
        return;
    }
    for (var first = 0u; first < PLACES; first += TEAMS) {
        let place = first + team.index;
        let vector = start_of_place(min(place, count - 1u)) + INPUT_SQUARES;
        let factor = factor_of_squares(vector, INPUT_GROUPS, team);
        if team.lane == 0u && place < count {
            atomicStore(&factors[place], bitcast<u32>(factor));
        }
    }
}

fn factor_left(place: u32) -> f32 {
    if !NORMED {
        return 1.0;
    }
    return bitcast<f32>(atomicLoad(&factors[place]));
}
