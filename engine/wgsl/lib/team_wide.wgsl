// A team is the lanes that sum one row together. Here it is LANES lanes of several whole subgroups, each of at most
// LANES: subgroups sum within themselves, and then through workgroup memory. Calls must be in uniform control flow.

const MAX_SUBGROUPS = WORKGROUP / SUBGROUP; // of a workgroup, SUBGROUP being the minimum number of lanes of one

struct Team {
    index: u32,     // of this team in the workgroup
    lane: u32,      // of this invocation in its team
    subgroup: u32,  // of this invocation in the workgroup
    first: u32,     // subgroup of the team
    subgroups: u32, // of the team
}

var<private> team_turn: u32; // consecutive sums use different memory, so that one barrier each suffices
var<workgroup> team_parts: array<vec4<f32>, 2u * MAX_SUBGROUPS>; // [turn][subgroup]

fn team_of(i: Invocation) -> Team {
    let subgroups = LANES / i.lanes;
    let index = i.subgroup / subgroups;
    let first = index * subgroups;
    return Team(index, (i.subgroup - first) * i.lanes + i.lane, i.subgroup, first, subgroups);
}

// The sums of up to four values over the team, in every lane.
fn team_sums(v: vec4<f32>, t: Team) -> vec4<f32> {
    let start = team_turn * MAX_SUBGROUPS;
    team_turn = 1u - team_turn;
    var sums = vec4<f32>(subgroupAdd(v.x), 0.0, 0.0, 0.0);
    if SUMS > 1u { sums.y = subgroupAdd(v.y); }
    if SUMS > 2u { sums.z = subgroupAdd(v.z); }
    if SUMS > 3u { sums.w = subgroupAdd(v.w); }
    team_parts[start + t.subgroup] = sums; // all lanes of the subgroup write the same
    workgroupBarrier();
    sums = vec4<f32>(0.0);
    for (var s = t.first; s < t.first + t.subgroups; s++) {
        sums += team_parts[start + s];
    }
    return sums;
}

// The sum of v over the team, in every lane.
fn team_sum(v: f32, t: Team) -> f32 {
    return team_sums(vec4<f32>(v, 0.0, 0.0, 0.0), t).x;
}

// The largest v of the team, in every lane.
fn team_max(v: f32, t: Team) -> f32 {
    let start = team_turn * MAX_SUBGROUPS;
    team_turn = 1u - team_turn;
    var largest = subgroupMax(v);
    team_parts[start + t.subgroup] = vec4<f32>(largest); // all lanes of the subgroup write the same
    workgroupBarrier();
    for (var s = t.first; s < t.first + t.subgroups; s++) {
        largest = max(largest, team_parts[start + s].x);
    }
    return largest;
}

// The sum of v over the workgroup, in every invocation.
fn workgroup_sum(v: f32, t: Team) -> f32 {
    return team_sum(v, Team(t.index, t.lane, t.subgroup, 0u, t.subgroups * (WORKGROUP / LANES)));
}
