// Only the experts of some groups can be selected: of the EXPERT_GROUPS_USED best of EXPERT_GROUPS groups of
// consecutive experts, all of the same size. A group's score is the sum of its two best selection scores. Of equal
// scores, the one of the lower group counts as better.

const EXPERTS_OF_GROUP = EXPERTS / EXPERT_GROUPS;

var<workgroup> group_scores: array<f32, EXPERT_GROUPS>;

fn group_score(group: u32) -> f32 {
    var best = NO_SELECTION_SCORE;
    var second = NO_SELECTION_SCORE;
    for (var k = 0u; k < EXPERTS_OF_GROUP; k++) {
        let e = group * EXPERTS_OF_GROUP + k;
        let selection_score = selection_scores[e / 4u][e % 4u];
        second = max(second, min(best, selection_score));
        best = max(best, selection_score);
    }
    return best + second;
}

// Whether the group is among the best.
fn is_used(group: u32) -> bool {
    let score = group_scores[group];
    var better = 0u;
    for (var k = 0u; k < EXPERT_GROUPS; k++) {
        let ahead = (group_scores[k] > score) | ((group_scores[k] == score) & (k < group));
        better += select(0u, 1u, ahead);
    }
    return better < EXPERT_GROUPS_USED;
}

// Replaces the selection scores of the experts that cannot be selected. All invocations call it when the selection
// scores are complete, and may read them afterwards.
fn limit_experts(local: u32) {
    for (var g = local; g < EXPERT_GROUPS; g += WORKGROUP) {
        group_scores[g] = group_score(g);
    }
    workgroupBarrier();
    for (var c = local; c < CHUNKS; c += WORKGROUP) {
        var some = selection_scores[c];
        for (var k = 0u; k < 4u && 4u * c + k < EXPERTS; k++) {
            if !is_used((4u * c + k) / EXPERTS_OF_GROUP) {
                some[k] = NO_SELECTION_SCORE;
            }
        }
        selection_scores[c] = some;
    }
    workgroupBarrier();
}
