// The router's selection of experts for every row of a batch, best first, and their weights. Each workgroup is for one
// row. The logits may be several parts that remain to be summed.

struct Params {
    pitch: u32, // values from row to row
    parts: u32,
    apart: u32, // values from part to part
}

var<uniform> params: Params;

var<storage, read_write> ids: array<u32>;     // [row][rank]
var<storage, read_write> weights: array<f32>; // [row][rank]

fn logit(e: u32) -> f32 {
    var sum = logits[first_logit + e];
    for (var part = 1u; part < params.parts; part++) {
        sum += logits[first_logit + part * params.apart + e];
    }
    return sum;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let token = workgroup.x;
    if token >= row_count() {
        return;
    }
    first_logit = token * params.pitch;
    score_experts(local);
    workgroupBarrier();
    rank_experts(local);
    workgroupBarrier();
    for (var k = local; k < TOP_K; k += WORKGROUP) {
        ids[token * TOP_K + k] = atomicLoad(&selected[k]);
        weights[token * TOP_K + k] = expert_weight(k);
    }
}
