// Chooses TOP_K experts from the router's logits and weighs them. One workgroup.
//
// score = sigmoid(logit) or softmax(logits); the bias takes part in the choice only. Equal scores go to
// the lower expert. A weight is the expert's score, over the sum of the chosen scores where NORMALISE,
// times the scale. ids always name experts, whatever the logits hold.

struct Params {
    experts: u32,
    scale: f32,
}

const LOWEST = -1e30; // below every score
const TAKEN = -2e30;  // below LOWEST
const SMALLEST_SUM = 6.103515625e-5; // as llama.cpp bounds the sum of the chosen scores

var<uniform> params: Params;
var<storage, read> logits: array<f32>;
var<storage, read> bias: array<f32>;
var<storage, read_write> ids: array<u32>;
var<storage, read_write> weights: array<f32>;

var<workgroup> scores: array<f32, EXPERTS>;
var<workgroup> chances: array<f32, EXPERTS>; // score + bias; TAKEN once chosen
var<workgroup> best_chance: array<f32, WORKGROUP>;
var<workgroup> best_expert: array<u32, WORKGROUP>;

// Reduces best_chance and best_expert to their first element.
fn reduce_best(local: u32) {
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if local < half {
            let chance = best_chance[local + half];
            let expert = best_expert[local + half];
            if chance > best_chance[local] || (chance == best_chance[local] && expert < best_expert[local]) {
                best_chance[local] = chance;
                best_expert[local] = expert;
            }
        }
    }
    workgroupBarrier();
}

// This invocation's best of its share of the experts.
fn find_best(local: u32) {
    var chance = TAKEN;
    var expert = min(local, params.experts - 1u);
    for (var e = local; e < params.experts; e += WORKGROUP) {
        if chances[e] > chance {
            chance = chances[e];
            expert = e;
        }
    }
    best_chance[local] = chance;
    best_expert[local] = expert;
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let team = team_of(i);
    var top = 0.0;
    var sum = 1.0;
    if SOFTMAX {
        var largest = LOWEST;
        for (var e = i.local; e < params.experts; e += WORKGROUP) {
            largest = max(largest, logits[e]);
        }
        best_chance[i.local] = largest;
        best_expert[i.local] = i.local;
        reduce_best(i.local);
        top = best_chance[0];
        var share = 0.0;
        for (var e = i.local; e < params.experts; e += WORKGROUP) {
            share += exp(logits[e] - top);
        }
        sum = workgroup_sum(share, team);
    }
    for (var e = i.local; e < params.experts; e += WORKGROUP) {
        var score = 0.0;
        if SOFTMAX {
            score = exp(logits[e] - top) / sum;
        } else {
            score = 1.0 / (1.0 + exp(select(-logits[e], 80.0, logits[e] < -80.0))); // beyond 88, e^x is not finite
        }
        scores[e] = score;
        chances[e] = max(score + bias[e], LOWEST);
    }
    workgroupBarrier();
    var total = 0.0;
    for (var k = 0u; k < TOP_K; k++) {
        find_best(i.local);
        reduce_best(i.local);
        let expert = best_expert[0];
        total += scores[expert];
        workgroupBarrier(); // best_expert is read before the next round overwrites it
        if i.local == 0u {
            ids[k] = expert;
            weights[k] = scores[expert];
            chances[expert] = TAKEN;
        }
        workgroupBarrier();
    }
    if i.local == 0u {
        let factor = select(params.scale, params.scale / max(total, SMALLEST_SUM), NORMALISE);
        for (var k = 0u; k < TOP_K; k++) {
            weights[k] *= factor;
        }
    }
}
