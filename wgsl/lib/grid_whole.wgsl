// Which workgroup one is, where a step is one dispatch: see lib/grid_part.wgsl.
fn in_grid(workgroup: vec3<u32>) -> vec3<u32> {
    return workgroup;
}
