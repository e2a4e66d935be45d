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
