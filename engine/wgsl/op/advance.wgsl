// Makes the batch of the next draft: a single row, the one of `candidates` after the accepted drafts and those that
// were made since. Its next token is the draft that was made last or, for the first draft, the sampled token. The host
// writes the candidates before it knows how many drafts are accepted. One workgroup.

struct Params {
    splits: u32, // the number of splits into which attention divides the KV rows
}

const HEADER = 4u;          // words of a batch's header: see lib/batch.wgsl
const ROW = 8u + 2u * PAIRS; // words of a row

var<uniform> params: Params;
var<storage, read> candidates: array<u32>; // a batch
var<storage, read> sampled: array<u32>;    // as op/sample.wgsl and op/accept.wgsl write it
var<storage, read_write> next_batch: array<u32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) local: u32) {
    let drafting = SAMPLED_WORDS * (candidates[HEADER + 4u] + ROWS);
    let made = sampled[drafting + 1u];
    let row = HEADER + (sampled[drafting] + made) * ROW;
    for (var word = local; word < ROW; word += WORKGROUP) {
        var value = candidates[row + word];
        if word == 1u {
            value = SAMPLED + select(drafting + 2u + made, SAMPLED_WORDS * candidates[row + 3u], made == 0u);
        }
        next_batch[HEADER + word] = value;
    }
    if local == 0u {
        next_batch[0] = 1u;
        next_batch[1] = candidates[row + 2u] + 1u;
        next_batch[2] = params.splits;
        next_batch[3] = candidates[3];
    }
}
