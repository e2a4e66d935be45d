// Tokens that compete, and the best of a workgroup's.

const NO_TOKEN = 0xffffffffu;
const LOWEST = -3.4e38; // below every score worth the name

struct Candidate {
    score: f32,
    token: u32,
}

const NOBODY = Candidate(LOWEST, NO_TOKEN);

var<workgroup> scores: array<f32, WORKGROUP>;
var<workgroup> tokens: array<u32, WORKGROUP>;

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

// The best of the workgroup's, in every invocation. WORKGROUP is a power of two.
fn best_of_workgroup(mine: Candidate, local: u32) -> Candidate {
    workgroupBarrier(); // an earlier one may still be read
    scores[local] = mine.score;
    tokens[local] = mine.token;
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if local < half {
            let other = Candidate(scores[local + half], tokens[local + half]);
            let best = better(Candidate(scores[local], tokens[local]), other);
            scores[local] = best.score;
            tokens[local] = best.token;
        }
    }
    workgroupBarrier();
    return Candidate(scores[0], tokens[0]);
}
