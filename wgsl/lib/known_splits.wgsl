// Into how many splits attention cuts the cache, where that is known when a kernel is compiled.
fn split_count() -> u32 {
    return SPLITS;
}
