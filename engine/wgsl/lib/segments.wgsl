// Attention of many rows over expanded keys and values takes the KV rows in segments of SEGMENT: memory holds the keys
// and values of one segment at a time. They are f16, in chunks of eight: for each head, one after the other, the key
// and the value of each KV row of the segment.

const LOWEST = -1e30; // below every score; finite, because fast-math compilers assume no infinities
const KEY_CHUNKS = KEY / 8u;
const VALUE_CHUNKS = VALUE / 8u;
const EXPANDED_CHUNKS = KEY_CHUNKS + VALUE_CHUNKS;

// The index of the key of a head and a KV row, counted from the start of the segment. The value follows it.
fn expanded_at(head: u32, kv_row: u32) -> u32 {
    return (head * SEGMENT + kv_row) * EXPANDED_CHUNKS;
}
