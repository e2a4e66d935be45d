// The vectors of a tile as the previous step wrote them: rounded to bytes, as lib/input_rounded.wgsl describes. They
// are staged in workgroup memory as they are, TILE groups of each at a time: neighbouring lanes then read different
// banks.

const GROUP_FOURS = GROUP_WORDS / 4u;
const TILE_FOURS = GROUP_FOURS * TILE;

var<storage, read> rounded_input: array<vec4<u32>>;

var<workgroup> gathered: array<vec4<u32>, PLACES * TILE_FOURS>; // [place][group]
var<workgroup> factors: array<atomic<u32>, PLACES>;             // bits of f32

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

// The factor that a normed input does not include, summed in the order of lib/input_rounded.wgsl.
fn factor_of_place(place: u32, team: Team) -> f32 {
    let first = start_of_place(place) + INPUT_SQUARES;
    var squares = vec4<f32>(0.0); // of half a group each
    for (var k = team.lane; k < (INPUT_GROUPS + 1u) / 2u; k += LANES) {
        let some = bitcast<vec4<f32>>(rounded_input[first + k]);
        // After an odd group there may be values of other steps.
        squares += select(some, vec4<f32>(some.xy, 0.0, 0.0), INPUT_GROUPS % 2u == 1u && k == INPUT_GROUPS / 2u);
    }
    let both = squares.xy + squares.zw;
    return inverseSqrt(team_sum(both.x + both.y, team) / f32(WIDTH) + EPSILON);
}

// Leaves the factors of the first `count` places for the whole workgroup, which calls this before a barrier. Teams
// compute one each at the same time, because sums are for whole subgroups.
fn leave_factors(count: u32, team: Team) {
    if !NORMED {
        return;
    }
    for (var first = 0u; first < PLACES; first += TEAMS) {
        let place = first + team.index;
        let factor = factor_of_place(min(place, count - 1u), team);
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
