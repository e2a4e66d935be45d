// Into how many splits attention cuts the cache, as the host tells.
fn split_count() -> u32 {
    return batch.splits;
}
