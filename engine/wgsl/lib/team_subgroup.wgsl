// A team is the lanes that sum one row together. Here it is LANES neighbours of a subgroup, a power of two. The
// subgroup has any size that the adapter uses, but at least LANES.

struct Team {
    index: u32, // of this team in the workgroup
    lane: u32,  // of this invocation in its team
}

var<workgroup> team_parts: array<f32, WORKGROUP / LANES>;

fn team_of(i: Invocation) -> Team {
    return Team(i.subgroup * (i.lanes / LANES) + i.lane / LANES, i.lane % LANES);
}

// The sum of v over the team, in every lane. For whole subgroups.
fn team_sum(v: f32, t: Team) -> f32 {
    var sum = v;
    for (var apart = LANES / 2u; apart > 0u; apart /= 2u) {
        sum += subgroupShuffleXor(sum, apart);
    }
    return sum;
}

// The largest v of the team, in every lane. For whole subgroups.
fn team_max(v: f32, t: Team) -> f32 {
    var largest = v;
    for (var apart = LANES / 2u; apart > 0u; apart /= 2u) {
        largest = max(largest, subgroupShuffleXor(largest, apart));
    }
    return largest;
}

// The sum of v over the workgroup, in every invocation.
fn workgroup_sum(v: f32, t: Team) -> f32 {
    let part = team_sum(v, t);
    workgroupBarrier(); // an earlier sum may still be read
    team_parts[t.index] = part; // all lanes write the same
    workgroupBarrier();
    var sum = 0.0;
    for (var i = 0u; i < WORKGROUP / LANES; i++) {
        sum += team_parts[i];
    }
    return sum;
}
