// The frame of products in which a lane decodes a group of weights once and multiplies it with up to PLACES vectors,
// the *places* of a tile. For each place a lane has a vec4 of sums, of which it uses VALUES: OWN for each row of the
// team.
//
// A team adds up the sums of all places together. In each step two lanes exchange halves of their sums, and each keeps
// adding only one half. The additions are the same as in team_sum, where both lanes do all of them, so the results are
// the same to the last bit.

const MAX_PLACES = 8u;
const VALUES = OWN * ROWS;
const SHARERS = LANES / PLACES;     // lanes that have the sums of the same place in the end
const ROW_SHARERS = SHARERS / ROWS; // and of the same row

alias PlaceSums = array<vec4<f32>, MAX_PLACES>;

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

fn exchange_and_add(low: vec4<f32>, high: vec4<f32>, apart: u32, lane: u32) -> vec4<f32> {
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
        s[0] = exchange_and_add(s[0], s[4], 4u * SHARERS, lane);
        s[1] = exchange_and_add(s[1], s[5], 4u * SHARERS, lane);
        s[2] = exchange_and_add(s[2], s[6], 4u * SHARERS, lane);
        s[3] = exchange_and_add(s[3], s[7], 4u * SHARERS, lane);
    }
    if PLACES > 2u {
        s[0] = exchange_and_add(s[0], s[2], 2u * SHARERS, lane);
        s[1] = exchange_and_add(s[1], s[3], 2u * SHARERS, lane);
    }
    if PLACES > 1u {
        s[0] = exchange_and_add(s[0], s[1], SHARERS, lane);
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
