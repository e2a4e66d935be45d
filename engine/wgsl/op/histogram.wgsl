// The number of a row's tokens in each bin of gaps, and how much less they weigh than as many at the bin's start. A
// workgroup takes CHUNKS times WORKGROUP times four logits.
//
// A bin is 2^20 units of the gap, a quarter of a logit. Its tokens weigh between 0.78 and 1 times what one at its start
// does. The differences (deficits) are integers, whose sums are the same in any order.

struct Params {
    count: u32,
    pitch: u32,  // from one row's logits to the next, in vec4s
    slices: u32, // each with a maximum
    scale: f32,  // of a deficit of 1
}

var<uniform> params: Params;
var<storage, read> logits: array<vec4<u32>>; // the bits of f32
var<storage, read_write> histogram: array<atomic<u32>>; // for each row the bins' counts, then their deficits

var<workgroup> counts: array<atomic<u32>, BINS>;
var<workgroup> deficits: array<atomic<u32>, BINS>;

fn add(logit: f32, top: f32) {
    let gap = min(gap_of(logit, top), LARGEST_GAP);
    let bin = units_of(gap) >> shift_of(0u);
    let deficit = 1.0 - weight_of(gap - 0.125 * f32(bin));
    atomicAdd(&counts[bin], 1u);
    atomicAdd(&deficits[bin], u32(deficit * params.scale + 0.5));
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    row = workgroup.y;
    for (var bin = local; bin < BINS; bin += WORKGROUP) {
        atomicStore(&counts[bin], 0u);
        atomicStore(&deficits[bin], 0u);
    }
    let top = likeliest(params.slices, local).score;
    for (var chunk = 0u; chunk < CHUNKS; chunk++) {
        let first = 4u * ((workgroup.x * CHUNKS + chunk) * WORKGROUP + local);
        if first < params.count {
            let four = logits[row * params.pitch + first / 4u];
            for (var k = 0u; k < 4u; k++) {
                if first + k < params.count && is_number(four[k]) {
                    add(bitcast<f32>(four[k]), top);
                }
            }
        }
    }
    workgroupBarrier();
    for (var bin = local; bin < BINS; bin += WORKGROUP) {
        let count = atomicLoad(&counts[bin]);
        if count > 0u {
            let place = 2u * BINS * row + bin;
            atomicAdd(&histogram[place], count);
            atomicAdd(&histogram[place + BINS], atomicLoad(&deficits[bin]));
        }
    }
}
