// Two sums of a range of a buffer, added to its pair in `sums`: every word times a factor that depends on its index in
// the buffer, all modulo 2^32. src/kernels/weight_sum.rs says which errors they detect. A workgroup takes CHUNKS tiles
// at a time, in a grid-stride loop; an invocation adds to the sums once, after all of its words.

struct Params {
    count: u32, // of the range, in vectors of four words
    tile: u32,  // the range's first in the buffer
    place: u32, // of the pair
}

var<uniform> params: Params;
var<storage, read> words: array<vec4<u32>>; // the range
var<storage, read_write> sums: array<atomic<u32>>; // pairs

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    var sum = vec2<u32>(0u);
    for (var first = workgroup.x * CHUNKS; first * WORKGROUP < params.count; first += workgroups.x * CHUNKS) {
        var held: array<vec4<u32>, CHUNKS>;
        for (var chunk = 0u; chunk < CHUNKS; chunk++) {
            let at = (first + chunk) * WORKGROUP + local;
            held[chunk] = select(vec4<u32>(0u), words[min(at, params.count - 1u)], at < params.count);
        }
        for (var chunk = 0u; chunk < CHUNKS; chunk++) {
            let four = held[chunk];
            let plain = four.x + four.y + four.z + four.w;
            let placed = 4u * local * plain + four.y + 2u * four.z + 3u * four.w;
            let noise = pcg4d(vec4<u32>(params.tile + first + chunk, 0u, 0u, 0u));
            sum += (noise.xz | vec2<u32>(1u)) * plain + 2u * noise.yw * placed;
        }
    }
    atomicAdd(&sums[2u * params.place], sum.x);
    atomicAdd(&sums[2u * params.place + 1u], sum.y);
}
