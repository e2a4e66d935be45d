// Attention divides the KV rows that a batch attends to into splits. One workgroup computes a split for a group of
// heads. A split consists of whole tiles of SPAN; with a short cache only the first splits have any.

const LOWEST = -1e30; // below every score; finite, because fast-math compilers assume no infinities

struct Split {
    start: u32, // first KV row
    end: u32,   // one past the last; no more than start for an idle split
}

fn split_count() -> u32 {
    if ONE_ROW {
        return SPLITS;
    }
    return batch.splits;
}

fn split_length() -> u32 {
    let tiles = (batch.longest + SPAN - 1u) / SPAN;
    return SPAN * ((tiles + split_count() - 1u) / split_count());
}

// A split of the first `attended` KV rows, at most those that the batch attends to.
fn split_of(index: u32, attended: u32) -> Split {
    let length = split_length();
    return Split(index * length, min((index + 1u) * length, attended));
}

// The KV rows of a split that a row attends to; none for a row past the last.
fn split_for(row: u32, index: u32) -> Split {
    if !ONE_ROW && row >= row_count() {
        return Split(0u, 0u);
    }
    return split_of(index, attended_by(row));
}
