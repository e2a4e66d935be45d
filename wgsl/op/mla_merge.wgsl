// Joins the splits of the attention: y[head] = Σ e^(top − largest) · part / Σ e^(top − largest) · total.

struct Params {
    heads: u32,
    rank: u32,     // values of the latent
    y_stride: u32, // values from one head's output to the next's
    splits: u32,
}

const LOWEST = -1e30;

var<uniform> params: Params;
var<storage, read> parts: array<f32>;       // [head][split][rank]
var<storage, read> stats: array<vec2<f32>>; // [head][split]: largest score, sum of weights
var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let head = workgroup.y;
    let at = workgroup.x * WORKGROUP + local;
    if at >= params.rank {
        return;
    }
    let tokens = state.position + 1u;
    let length = split_length(params.splits, tokens);
    let busy = (tokens + length - 1u) / length; // idle splits wrote nothing
    var largest = LOWEST;
    for (var s = 0u; s < busy; s++) {
        largest = max(largest, stats[head * params.splits + s].x);
    }
    var sum = 0.0;
    var total = 0.0;
    for (var s = 0u; s < busy; s++) {
        let slot = head * params.splits + s;
        let share = exp(stats[slot].x - largest);
        sum += share * parts[slot * params.rank + at];
        total += share * stats[slot].y;
    }
    y[head * params.y_stride + at] = sum / total;
}
