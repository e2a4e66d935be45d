// Attention divides the KV rows that the rows of a sequence attend to into splits. One workgroup computes a split for a
// group of heads. A split consists of whole tiles of SPAN; with a short cache only the first splits have any. The
// splits of a sequence do not depend on the other sequences of a batch.

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

// The length of the splits for a row of the batch.
fn split_length(row: u32) -> u32 {
    let tiles = (longest_of(row) + SPAN - 1u) / SPAN;
    return SPAN * ((tiles + split_count() - 1u) / split_count());
}

// A split for a row, of the first `attended` of its sequence's KV rows.
fn split_of(row: u32, index: u32, attended: u32) -> Split {
    let length = split_length(row);
    return Split(index * length, min((index + 1u) * length, attended));
}

// The KV rows of a split that a row attends to; none for a row past the last.
fn split_for(row: u32, index: u32) -> Split {
    if !ONE_ROW && row >= row_count() {
        return Split(0u, 0u);
    }
    return split_of(row, index, attended_by(row));
}
