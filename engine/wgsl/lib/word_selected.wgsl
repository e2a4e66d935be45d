// A word of a vector by its index, for compilers that would keep an indexed vector in memory, such as Apple's.

fn word_of(v: vec4<u32>, i: u32) -> u32 {
    let second = (i & 1u) == 1u;
    return select(select(v.x, v.y, second), select(v.z, v.w, second), i >= 2u);
}
