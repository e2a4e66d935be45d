// Candidate tokens, and the best one of a workgroup.

const LOWEST = -3.4e38; // below every real score

struct Candidate {
    score: f32,
    token: u32,
}

var<private> row: u32; // the row of the batch whose logits a workgroup works on

const NO_CANDIDATE = Candidate(LOWEST, NO_TOKEN);

const FINALISTS = 16u;

var<workgroup> scores: array<f32, WORKGROUP>;
var<workgroup> tokens: array<u32, WORKGROUP>;
var<workgroup> final_scores: array<f32, FINALISTS>;
var<workgroup> final_tokens: array<u32, FINALISTS>;

// Whether these are the bits of a finite f32. They are loaded as bits, because a fast-math compiler assumes that every
// f32 is finite, and removes checks of its bits.
fn is_number(bits: u32) -> bool {
    return (bits & 0x7fffffffu) < 0x7f800000u;
}

// The candidate with the larger score; among equals the one with the lower id.
fn better(a: Candidate, b: Candidate) -> Candidate {
    if b.score > a.score || (b.score == a.score && b.token < a.token) {
        return b;
    }
    return a;
}

// The best candidate of the workgroup, in every invocation. WORKGROUP is a multiple of FINALISTS.
fn best_of_workgroup(mine: Candidate, local: u32) -> Candidate {
    workgroupBarrier(); // an earlier result may still be read
    scores[local] = mine.score;
    tokens[local] = mine.token;
    workgroupBarrier();
    let place = local % FINALISTS; // several invocations compute the same
    var best = mine;
    for (var i = place; i < WORKGROUP; i += FINALISTS) {
        best = better(best, Candidate(scores[i], tokens[i]));
    }
    final_scores[place] = best.score;
    final_tokens[place] = best.token;
    workgroupBarrier();
    for (var i = 0u; i < FINALISTS; i++) {
        best = better(best, Candidate(final_scores[i], final_tokens[i]));
    }
    return best;
}
