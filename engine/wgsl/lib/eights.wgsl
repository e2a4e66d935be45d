// Grids whose entries are eight bytes (src/quant/grids.rs), for all weights of a shader.

var<storage, read> eights: array<vec2<u32>>;

// The bytes of four entries.
fn four_eights(places: vec4<u32>) -> Bytes {
    return Bytes(vec4<u32>(eights[places.x], eights[places.y]), vec4<u32>(eights[places.z], eights[places.w]));
}
