// The largest logit of each slice of a row, and its token, among equals the lowest one; NO_CANDIDATE if none is finite.
// One workgroup for each slice, four logits for each invocation. Clears the row's histogram for the step that fills it.

struct Params {
    count: u32,
    pitch: u32, // from one row's logits to the next, in vec4s
    bins: u32,  // words of a row's histogram
}

var<uniform> params: Params;
var<storage, read> logits: array<vec4<u32>>; // the bits of f32
var<storage, read_write> maxima: array<vec2<u32>>; // the bits of the logit, its token
var<storage, read_write> histogram: array<u32>;

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    row = workgroup.y;
    for (var bin = workgroup.x * WORKGROUP + local; bin < params.bins; bin += workgroups.x * WORKGROUP) {
        histogram[row * params.bins + bin] = 0u;
    }
    let first = 4u * (workgroup.x * WORKGROUP + local);
    var best = NO_CANDIDATE;
    if first < params.count {
        let four = logits[row * params.pitch + first / 4u];
        for (var k = 0u; k < 4u; k++) {
            if first + k < params.count && is_number(four[k]) {
                best = better(best, Candidate(bitcast<f32>(four[k]), first + k));
            }
        }
    }
    best = best_of_workgroup(best, local);
    if local == 0u {
        maxima[row * workgroups.x + workgroup.x] = vec2<u32>(bitcast<u32>(best.score), best.token);
    }
}
