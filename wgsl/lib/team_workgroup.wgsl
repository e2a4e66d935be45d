// A team is the lanes that sum together. Here it is the whole workgroup, LANES = WORKGROUP, which adds through
// workgroup memory: the path for adapters without subgroup operations. Calls must be in uniform control flow.

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
}

struct Team {
    index: u32, // of this team in the workgroup: 0
    lane: u32,  // of this invocation in its team
}

var<workgroup> team_parts: array<f32, WORKGROUP>;

fn team_of(i: Invocation) -> Team {
    return Team(0u, i.local);
}

// The sum of v over the team, in every lane. WORKGROUP is a power of two.
fn team_sum(v: f32, t: Team) -> f32 {
    workgroupBarrier(); // an earlier sum may still be read
    team_parts[t.lane] = v;
    workgroupBarrier();
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        if t.lane < half {
            team_parts[t.lane] += team_parts[t.lane + half];
        }
        workgroupBarrier();
    }
    return team_parts[0];
}

// The largest v of the team, in every lane.
fn team_max(v: f32, t: Team) -> f32 {
    workgroupBarrier(); // an earlier result may still be read
    team_parts[t.lane] = v;
    workgroupBarrier();
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        if t.lane < half {
            team_parts[t.lane] = max(team_parts[t.lane], team_parts[t.lane + half]);
        }
        workgroupBarrier();
    }
    return team_parts[0];
}

// The sum of v over the workgroup, in every invocation.
fn workgroup_sum(v: f32, t: Team) -> f32 {
    return team_sum(v, t);
}
