// copied = source, as fast as memory allows: each invocation has CHUNKS outstanding reads before it writes.

struct Params {
    count: u32, // of four words each
}

var<uniform> params: Params;
var<storage, read> source: array<vec4<u32>>;
var<storage, read_write> copied: array<vec4<u32>>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let first = workgroup.x * CHUNKS * WORKGROUP + local;
    var held: array<vec4<u32>, CHUNKS>;
    for (var chunk = 0u; chunk < CHUNKS; chunk++) {
        held[chunk] = source[min(first + chunk * WORKGROUP, params.count - 1u)];
    }
    for (var chunk = 0u; chunk < CHUNKS; chunk++) {
        let place = first + chunk * WORKGROUP;
        if place < params.count {
            copied[place] = held[chunk];
        }
    }
}
