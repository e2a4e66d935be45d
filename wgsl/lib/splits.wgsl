// Attention cuts the cache into splits, each the work of one workgroup per head group. A split is whole
// tiles; with a short cache only the first splits have any.

struct Split {
    start: u32, // first token
    end: u32,   // one past the last; no more than start for an idle split
}

fn split_length(splits: u32, tokens: u32) -> u32 {
    let tiles = (tokens + SPAN - 1u) / SPAN;
    return SPAN * ((tiles + splits - 1u) / splits);
}

fn split_of(index: u32, splits: u32, tokens: u32) -> Split {
    let length = split_length(splits, tokens);
    return Split(index * length, min((index + 1u) * length, tokens));
}

// The part of a split that a token attends to, which is counted from the first that the host told of: what comes before
// it, and itself. Nothing for one past the last.
fn split_for(token: u32, index: u32, splits: u32) -> Split {
    let split = split_of(index, splits, batch.position + token_count());
    return Split(split.start, select(0u, min(split.end, batch.position + token + 1u), token < token_count()));
}
