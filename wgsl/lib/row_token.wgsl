// The ids of the rows' tokens. The GPU may compute a token before the host knows its id: then the batch names SAMPLED, and
// the id is the one that was sampled last for the row's sequence.

const SAMPLED = 0xffffffffu;

var<storage, read> sampled: array<u32>; // three words of each sequence: see op/sample.wgsl

fn token_of(row: u32) -> u32 {
    let named = batch.rows[row].token;
    if named == SAMPLED {
        return sampled[3u * batch.rows[row].sequence];
    }
    return named;
}
