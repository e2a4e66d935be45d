// Selects TOP_K of EXPERTS experts by the router's logits and computes their weights. All invocations of a workgroup
// call score_experts and, after a barrier, rank_experts, followed by another barrier. One of two files says which
// experts can be selected: lib/expert_groups_none.wgsl or lib/expert_groups.wgsl.
//
// score = sigmoid(logit) or softmax(logits). The bias affects only the selection. Of equal scores, the one of the lower
// expert counts as better. A weight is the expert's score, divided by the sum of the selected scores if NORMALISE is
// set, times SCALE. `selected` always has valid experts, whatever the logits are.

const LOWEST_SELECTION_SCORE = -1e30;
const NO_SELECTION_SCORE = -2e30; // below every expert's
const CHUNKS = (EXPERTS + 3u) / 4u;

var<storage, read> logits: array<f32>;
var<storage, read> bias: array<f32>;

var<private> first_logit: u32 = 0u; // of the row of the batch

var<workgroup> scores: array<f32, EXPERTS>;
// score + bias. Each invocation writes whole vectors, because writing a component may write the whole vector.
var<workgroup> selection_scores: array<vec4<f32>, CHUNKS>;
var<workgroup> selected: array<atomic<u32>, TOP_K>;

// The softmax of expert e's logit. There are few enough experts for each invocation to read all of them.
fn softmax(e: u32) -> f32 {
    var top = LOWEST_SELECTION_SCORE;
    for (var k = 0u; k < EXPERTS; k++) {
        top = max(top, selection_scores[k / 4u][k % 4u]);
    }
    var sum = 0.0;
    for (var k = 0u; k < EXPERTS; k++) {
        sum += exp(selection_scores[k / 4u][k % 4u] - top);
    }
    return exp(selection_scores[e / 4u][e % 4u] - top) / sum;
}

fn score_experts(local: u32) {
    if SOFTMAX {
        for (var c = local; c < CHUNKS; c += WORKGROUP) {
            var some = vec4<f32>(0.0);
            for (var k = 0u; k < 4u && 4u * c + k < EXPERTS; k++) {
                some[k] = logit(4u * c + k);
            }
            selection_scores[c] = some;
        }
        workgroupBarrier();
        for (var e = local; e < EXPERTS; e += WORKGROUP) {
            scores[e] = softmax(e);
        }
        workgroupBarrier(); // the logits are read before the selection scores overwrite them
    }
    for (var c = local; c < CHUNKS; c += WORKGROUP) {
        var some = vec4<f32>(NO_SELECTION_SCORE);
        for (var k = 0u; k < 4u && 4u * c + k < EXPERTS; k++) {
            let e = 4u * c + k;
            if !SOFTMAX {
                scores[e] = sigmoid(logit(e));
            }
            some[k] = max(scores[e] + bias[e], LOWEST_SELECTION_SCORE);
        }
        selection_scores[c] = some;
    }
    for (var k = local; k < TOP_K; k += WORKGROUP) {
        atomicStore(&selected[k], k); // remains if no selection score is a number
    }
}

// An expert's rank is the number of experts with better selection scores.
fn rank_experts(local: u32) {
    limit_experts(local);
    for (var e = local; e < EXPERTS; e += WORKGROUP) {
        let selection_score = vec4<f32>(selection_scores[e / 4u][e % 4u]);
        var better = vec4<u32>(0u);
        for (var k = 0u; k < CHUNKS; k++) {
            let lower = vec4<u32>(4u * k) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(e);
            let ahead = (selection_scores[k] > selection_score) | ((selection_scores[k] == selection_score) & lower);
            better += select(vec4<u32>(0u), vec4<u32>(1u), ahead);
        }
        let rank = better.x + better.y + better.z + better.w;
        if rank < TOP_K {
            atomicStore(&selected[rank], e);
        }
    }
}

fn expert_weight(slot: u32) -> f32 {
    var total = 0.0;
    for (var k = 0u; k < TOP_K; k++) {
        total += scores[atomicLoad(&selected[k])];
    }
    return scores[atomicLoad(&selected[slot])] * select(SCALE, SCALE / max(total, SMALLEST_SUM), NORMALISE);
}
