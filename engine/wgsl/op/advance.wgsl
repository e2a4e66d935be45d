// Makes the batch of the next drafts: a row for each sequence, the one of its `candidates` after the accepted drafts
// and those that were made since. The row's next token is the draft that was made last or, for the first draft, the
// sampled token. The host writes the candidates before it knows how many drafts are accepted, the same number for each
// sequence. One workgroup for each row.

struct Params {
    splits: u32, // the number of splits into which attention divides the KV rows
}

const HEADER = 4u;            // words of a batch's header: see lib/batch.wgsl
const ROW = 10u + 2u * PAIRS; // words of a row

var<uniform> params: Params;
var<storage, read> candidates: array<u32>; // a batch, whose header has the candidates of a sequence instead of splits
var<storage, read> sampled: array<u32>;    // as op/sample.wgsl and op/accept.wgsl write it
var<storage, read_write> next_batch: array<u32>;

// The word at which a sequence's drafts are counted, given its first candidate.
fn drafting_of(candidate: u32) -> u32 {
    return SAMPLED_WORDS * (candidates[candidate + 4u] + ROWS + DRAFTING * candidates[candidate + 3u]);
}

// The first word of the row of a sequence, which is one of its candidates.
fn row_of(number: u32) -> u32 {
    let first = HEADER + number * candidates[2] * ROW;
    let drafting = drafting_of(first);
    return first + (sampled[drafting] + sampled[drafting + 1u]) * ROW;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let count = candidates[0] / candidates[2];
    if workgroup.x >= count {
        return;
    }
    let row = row_of(workgroup.x);
    let drafting = drafting_of(row);
    let made = sampled[drafting + 1u];
    for (var word = local; word < ROW; word += WORKGROUP) {
        var value = candidates[row + word];
        if word == 1u {
            value = SAMPLED + select(drafting + 2u + made, SAMPLED_WORDS * candidates[row + 3u], made == 0u);
        } else if word == 8u { // the KV rows that it attends to: it is the only row of its sequence
            value = candidates[row + 2u] + 1u;
        }
        next_batch[HEADER + workgroup.x * ROW + word] = value;
    }
    if workgroup.x == 0u && local == 0u {
        var longest = 0u;
        for (var number = 0u; number < count; number++) {
            longest = max(longest, candidates[row_of(number) + 2u] + 1u);
        }
        next_batch[0] = count;
        next_batch[1] = longest;
        next_batch[2] = params.splits;
        next_batch[3] = candidates[3];
    }
}
