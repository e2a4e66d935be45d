// The frame of products of which a lane decodes each group of weights once for several vectors: the *places* of a tile,
// up to PLACES. A lane has a vec4 of sums for each place, of which it uses VALUES: OWN values for each of the team's
// rows.
//
// A team adds up the sums of all places together. In each step a lane gives half of its sums to the lane that is
// `apart` from it, and adds what it gets to the other half. So sums are added in the order of team_sum, in which both
// lanes add up all of them, to the last bit.

const TEAMS = WORKGROUP / LANES;
const MOST_PLACES = 8u;
const VALUES = OWN * ROWS;
const SHARERS = LANES / PLACES;     // lanes that have the sums of the same place in the end
const ROW_SHARERS = SHARERS / ROWS; // and of the same row

alias PlaceSums = array<vec4<f32>, MOST_PLACES>;

// The first row of a workgroup, and of a team.
fn first_row_of_all(workgroup: vec3<u32>) -> u32 {
    return (workgroup.y * GRID_WIDTH + workgroup.x) * TEAMS * ROWS;
}

fn first_row(workgroup: vec3<u32>, team: Team) -> u32 {
    return first_row_of_all(workgroup) + team.index * ROWS;
}

// The place and the row of its team whose sums a lane has in the end, and whether it is the first such lane.
fn place_of_lane(lane: u32) -> u32 {
    return lane / SHARERS;
}

fn row_of_lane(lane: u32) -> u32 {
    return lane / ROW_SHARERS % ROWS;
}

fn leads(lane: u32) -> bool {
    return lane % ROW_SHARERS == 0u;
}

fn one_from(v: f32, apart: u32) -> f32 {
    return subgroupShuffleXor(v, apart);
}

fn two_from(v: vec2<f32>, apart: u32) -> vec2<f32> {
    return vec2<f32>(one_from(v.x, apart), one_from(v.y, apart));
}

fn halved(low: vec4<f32>, high: vec4<f32>, apart: u32, lane: u32) -> vec4<f32> {
    let upper = (lane & apart) != 0u;
    let kept = select(low, high, upper);
    let given = select(high, low, upper);
    if VALUES == 1u {
        return vec4<f32>(kept.x + one_from(given.x, apart), 0.0, 0.0, 0.0);
    }
    if VALUES == 2u {
        return vec4<f32>(kept.xy + two_from(given.xy, apart), 0.0, 0.0);
    }
    return kept + vec4<f32>(two_from(given.xy, apart), two_from(given.zw, apart));
}

// The sums, over the team, of the place and the row of this lane: OWN values.
fn sums_of_lane(all: PlaceSums, lane: u32) -> vec2<f32> {
    var s = all;
    if PLACES > 4u {
        s[0] = halved(s[0], s[4], 4u * SHARERS, lane);
        s[1] = halved(s[1], s[5], 4u * SHARERS, lane);
        s[2] = halved(s[2], s[6], 4u * SHARERS, lane);
        s[3] = halved(s[3], s[7], 4u * SHARERS, lane);
    }
    if PLACES > 2u {
        s[0] = halved(s[0], s[2], 2u * SHARERS, lane);
        s[1] = halved(s[1], s[3], 2u * SHARERS, lane);
    }
    if PLACES > 1u {
        s[0] = halved(s[0], s[1], SHARERS, lane);
    }
    var two = s[0].xy;
    if VALUES == 4u {
        let upper = (lane & (SHARERS / 2u)) != 0u;
        two = select(s[0].xy, s[0].zw, upper) + two_from(select(s[0].zw, s[0].xy, upper), SHARERS / 2u);
    }
    if OWN == 1u && VALUES > 1u {
        let upper = (lane & ROW_SHARERS) != 0u;
        two = vec2<f32>(select(two.x, two.y, upper) + one_from(select(two.y, two.x, upper), ROW_SHARERS), 0.0);
    }
    for (var apart = ROW_SHARERS / 2u; apart > 0u; apart /= 2u) {
        two.x += one_from(two.x, apart);
        if OWN > 1u {
            two.y += one_from(two.y, apart);
        }
    }
    return two;
}
