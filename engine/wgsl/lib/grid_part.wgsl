// The position of a workgroup in the grid of a step that is several dispatches, each of a part of the grid.

struct Params { // the part's first workgroup
    x: u32,
    y: u32,
    z: u32,
}

var<uniform> params: Params;

fn in_grid(workgroup: vec3<u32>) -> vec3<u32> {
    return vec3<u32>(params.x, params.y, params.z) + workgroup;
}
