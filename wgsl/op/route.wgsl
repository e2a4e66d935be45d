// The router's choice of experts, best first, and their weights. One workgroup.

var<storage, read_write> ids: array<u32>;
var<storage, read_write> weights: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) local: u32) {
    choose_scores(local);
    workgroupBarrier();
    choose_ranks(local);
    workgroupBarrier();
    for (var k = local; k < TOP_K; k += WORKGROUP) {
        ids[k] = chosen[k];
        weights[k] = chosen_weight(k);
    }
}
