// Merges the splits of a head's attention: Σ e^(reference − largest) · part / Σ e^(reference − largest) · total. A
// split's weights are relative to its reference, its largest score or, in kernels with matrices, one at most MARGIN
// below it (lib/online_softmax.wgsl). Heads are counted over all rows of the batch, HEADS of each. The invocations of a
// workgroup share the latent's chunks of four values and, if there are more invocations than chunks, the splits.

const LATENT = RANK / 4u; // chunks
const PHASES = max(1u, WORKGROUP / LATENT);

var<storage, read> parts: array<vec4<f32>>;  // [head][split][rank]
var<storage, read> stats: array<vec2<f32>>; // [head][split]: reference, sum of weights

var<workgroup> split_stats: array<vec2<f32>, MAX_SPLITS>;
var<workgroup> shares: array<f32, MAX_SPLITS>;
var<workgroup> phase_sums: array<vec4<f32>, PHASES * LATENT>;

// Called by the whole workgroup; `merged` can be called after the next barrier. Each team finds the largest reference
// and the total by itself.
fn merge(head: u32, local: u32, team: Team) {
    let length = split_length(head / HEADS);
    let busy = (attended_by(head / HEADS) + length - 1u) / length; // idle splits wrote nothing
    for (var s = local; s < busy; s += WORKGROUP) {
        split_stats[s] = stats[head * split_count() + s];
    }
    workgroupBarrier();
    var largest = LOWEST; // reference
    for (var s = team.lane; s < busy; s += LANES) {
        largest = max(largest, split_stats[s].x);
    }
    largest = team_max(largest, team);
    var total = 0.0;
    for (var s = team.lane; s < busy; s += LANES) {
        total += exp(split_stats[s].x - largest) * split_stats[s].y;
    }
    total = team_sum(total, team);
    for (var s = local; s < busy; s += WORKGROUP) {
        shares[s] = exp(split_stats[s].x - largest) / total;
    }
    workgroupBarrier();
    for (var k = local; k < PHASES * LATENT; k += WORKGROUP) {
        var sum = vec4<f32>(0.0);
        for (var s = k / LATENT; s < busy; s += PHASES) {
            sum += shares[s] * parts[(head * split_count() + s) * LATENT + k % LATENT];
        }
        phase_sums[k] = sum;
    }
}

// Chunk `at` of the head's output; zeros past the last.
fn merged(at: u32) -> vec4<f32> {
    var sum = vec4<f32>(0.0);
    for (var phase = 0u; phase < PHASES && at < LATENT; phase++) {
        sum += phase_sums[phase * LATENT + at];
    }
    return sum;
}
