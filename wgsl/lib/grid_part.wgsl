// Which workgroup of a step one is, where the step is several dispatches, each for a part of its grid.

struct Params { // the part's first workgroup
    x: u32,
    y: u32,
    z: u32,
}

var<uniform> params: Params;

fn in_grid(workgroup: vec3<u32>) -> vec3<u32> {
    return vec3<u32>(params.x, params.y, params.z) + workgroup;
}
