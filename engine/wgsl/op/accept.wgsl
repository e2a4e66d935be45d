// Verifies drafts. Each row of a sequence except the first has a draft, a guess of the token after the previous row. A
// draft is accepted if it equals the token that was sampled after that row, and all drafts before it are accepted. The
// sequence continues with the token that was sampled after the last accepted row. The rows of a sequence are adjacent.
// One workgroup, and an invocation for each sequence.

// As op/sample.wgsl writes it; after the entries of ROWS rows, DRAFTING for each sequence: how many of its drafts were
// accepted, how many were made since, and after the first entry these.
var<storage, read_write> sampled: array<u32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) local: u32) {
    for (var row = local; row < row_count(); row += WORKGROUP) {
        if row == 0u || batch.rows[row].sequence != batch.rows[row - 1u].sequence {
            verify(row);
        }
    }
}

// Verifies the drafts of the sequence whose first row this is.
fn verify(first: u32) {
    let sequence = batch.rows[first].sequence;
    var last = first;
    while last + 1u < row_count() && batch.rows[last + 1u].sequence == sequence
        && sampled[SAMPLED_WORDS * batch.rows[last].result] == token_of(last + 1u) {
        last++;
    }
    for (var word = 0u; word < 3u; word++) {
        sampled[SAMPLED_WORDS * sequence + word] = sampled[SAMPLED_WORDS * batch.rows[last].result + word];
    }
    let drafting = SAMPLED_WORDS * (batch.rows[0].result + ROWS + DRAFTING * sequence);
    sampled[drafting] = last - first;
    sampled[drafting + 1u] = 0u; // drafts that were made since
}
