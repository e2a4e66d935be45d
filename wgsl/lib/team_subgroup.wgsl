// A team is the lanes that sum together. Here it is a subgroup, of whatever size the adapter runs:
// nothing below or above this file knows that size beforehand.

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    @builtin(subgroup_id) team: u32,
    @builtin(num_subgroups) teams: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) lanes: u32,
}

struct Team {
    index: u32, // of this team in the workgroup
    count: u32, // teams in the workgroup
    lane: u32,  // of this invocation in its team
    lanes: u32, // in a team
}

var<workgroup> team_parts: array<f32, WORKGROUP>;

fn team_of(i: Invocation) -> Team {
    return Team(i.team, i.teams, i.lane, min(i.lanes, WORKGROUP)); // a subgroup may be larger than the workgroup
}

// The sum of v over the team, in every lane.
fn team_sum(v: f32, t: Team) -> f32 {
    return subgroupAdd(v);
}

// The sum of v over the workgroup, in every invocation.
fn workgroup_sum(v: f32, t: Team) -> f32 {
    let part = subgroupAdd(v);
    workgroupBarrier(); // an earlier sum may still be read
    if t.lane == 0u {
        team_parts[t.index] = part;
    }
    workgroupBarrier();
    var sum = 0.0;
    for (var i = 0u; i < t.count; i++) {
        sum += team_parts[i];
    }
    return sum;
}
