// The position of a workgroup in the grid of a step that is one dispatch. See lib/grid_part.wgsl.
fn in_grid(workgroup: vec3<u32>) -> vec3<u32> {
    return workgroup;
}
