// A word of a vector by its index, for compilers that would keep a vector that is indexed in memory, as Apple's do.

fn word_of(v: vec4<u32>, i: u32) -> u32 {
    let second = (i & 1u) == 1u;
    return select(select(v.x, v.y, second), select(v.z, v.w, second), i >= 2u);
}
