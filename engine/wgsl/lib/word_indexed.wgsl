// A word of a vector by its index, for compilers that load it from the vector's origin.

fn word_of(v: vec4<u32>, i: u32) -> u32 {
    return v[i];
}
