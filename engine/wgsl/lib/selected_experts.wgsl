// The entry of a workgroup's tile, and its block of rows, if all tiles are for selected experts.

fn tile_and_block(workgroup: vec3<u32>) -> vec2<u32> {
    return workgroup.xy;
}
