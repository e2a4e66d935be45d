// The router's choice of experts for every row of a batch, best first, and their weights. Each workgroup is for one
// row.

var<storage, read_write> ids: array<u32>;     // [row][rank]
var<storage, read_write> weights: array<f32>; // [row][rank]

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let token = workgroup.x;
    if token >= row_count() {
        return;
    }
    first_logit = token * LOGITS_PITCH;
    score_experts(local);
    workgroupBarrier();
    rank_experts(local);
    workgroupBarrier();
    for (var k = local; k < TOP_K; k += WORKGROUP) {
        ids[token * TOP_K + k] = atomicLoad(&selected[k]);
        weights[token * TOP_K + k] = expert_weight(k);
    }
}
