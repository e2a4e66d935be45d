// Tokens that compete, and the best of a workgroup's.

const LOWEST = -3.4e38; // below every score worth the name

struct Candidate {
    score: f32,
    token: u32,
}

var<private> row: u32; // the row of the batch whose logits a workgroup works on

const NOBODY = Candidate(LOWEST, NO_TOKEN);

const FINALISTS = 16u;

var<workgroup> scores: array<f32, WORKGROUP>;
var<workgroup> tokens: array<u32, WORKGROUP>;
var<workgroup> final_scores: array<f32, FINALISTS>;
var<workgroup> final_tokens: array<u32, FINALISTS>;

// Whether the bits of an f32 are those of a number. They come from memory as bits: what is an f32 once, fast-math
// compilers take for a number, whatever is asked about its bits.
fn is_number(bits: u32) -> bool {
    return (bits & 0x7fffffffu) < 0x7f800000u;
}

// The one with the larger score, and of equals the one with the lower id.
fn better(a: Candidate, b: Candidate) -> Candidate {
    if b.score > a.score || (b.score == a.score && b.token < a.token) {
        return b;
    }
    return a;
}

// The best of the workgroup's, in every invocation. WORKGROUP is a multiple of FINALISTS.
fn best_of_workgroup(mine: Candidate, local: u32) -> Candidate {
    workgroupBarrier(); // an earlier one may still be read
    scores[local] = mine.score;
    tokens[local] = mine.token;
    workgroupBarrier();
    let place = local % FINALISTS; // several invocations find the same
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
