// Verifies drafts. Each row of the batch except the first has a draft, a guess of the token after the previous row. A
// draft is accepted if it equals the token that was sampled after that row, and all drafts before it are accepted. The
// sequence continues with the token that was sampled after the last accepted row. One invocation.

var<storage, read_write> sampled: array<u32>; // as op/sample.wgsl writes it; after the entries of ROWS
// rows how many drafts were accepted, and how many were made since

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) local: u32) {
    if local > 0u {
        return;
    }
    var last = 0u;
    while last + 1u < row_count() && sampled[SAMPLED_WORDS * batch.rows[last].result] == token_of(last + 1u) {
        last++;
    }
    for (var word = 0u; word < 3u; word++) {
        sampled[SAMPLED_WORDS * batch.rows[0].sequence + word] = sampled[SAMPLED_WORDS * batch.rows[last].result + word];
    }
    let drafting = SAMPLED_WORDS * (batch.rows[0].result + ROWS);
    sampled[drafting] = last;
    sampled[drafting + 1u] = 0u; // drafts that were made since
}
