// A team is the lanes that sum one row together. Here it is the whole workgroup, LANES = WORKGROUP, which sums through
// workgroup memory, for adapters without subgroup operations. Calls must be in uniform control flow.

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
}

struct Team {
    index: u32, // of this team in the workgroup: 0
    lane: u32,  // of this invocation in its team
}

const TEAM_PARTS = min(16u, WORKGROUP);

var<workgroup> team_values: array<f32, WORKGROUP>;
var<workgroup> team_parts: array<f32, TEAM_PARTS>;

fn team_of(i: Invocation) -> Team {
    return Team(0u, i.local);
}

// The sum of v over the team, in every lane. WORKGROUP is a multiple of TEAM_PARTS.
fn team_sum(v: f32, t: Team) -> f32 {
    workgroupBarrier(); // an earlier sum may still be read
    team_values[t.lane] = v;
    workgroupBarrier();
    var sum = 0.0;
    for (var i = t.lane % TEAM_PARTS; i < WORKGROUP; i += TEAM_PARTS) {
        sum += team_values[i];
    }
    team_parts[t.lane % TEAM_PARTS] = sum; // several lanes write the same
    workgroupBarrier();
    sum = 0.0;
    for (var i = 0u; i < TEAM_PARTS; i++) {
        sum += team_parts[i];
    }
    return sum;
}

// The largest v of the team, in every lane.
fn team_max(v: f32, t: Team) -> f32 {
    workgroupBarrier(); // an earlier result may still be read
    team_values[t.lane] = v;
    workgroupBarrier();
    var largest = v;
    for (var i = t.lane % TEAM_PARTS; i < WORKGROUP; i += TEAM_PARTS) {
        largest = max(largest, team_values[i]);
    }
    team_parts[t.lane % TEAM_PARTS] = largest;
    workgroupBarrier();
    for (var i = 0u; i < TEAM_PARTS; i++) {
        largest = max(largest, team_parts[i]);
    }
    return largest;
}

// The sum of v over the workgroup, in every invocation.
fn workgroup_sum(v: f32, t: Team) -> f32 {
    return team_sum(v, t);
}
