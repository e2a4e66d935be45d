// masked = logits where the mask of a row has a one for the token, and minus infinity elsewhere, for which is_number is
// false. Four logits for each invocation.

struct Params {
    count: u32, // logits of a row
    pitch: u32, // from one row's logits to the next, in vec4s
    words: u32, // of a row's mask
}

const BANNED = 0xff800000u; // the bits of minus infinity

var<uniform> params: Params;
var<storage, read> logits: array<vec4<u32>>; // the bits of f32
var<storage, read> mask: array<u32>; // one bit for each token of each row, the lowest bit of a word first
var<storage, read_write> masked: array<vec4<u32>>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let four = workgroup.x * WORKGROUP + local;
    let first = 4u * four;
    if first >= params.count {
        return;
    }
    let place = workgroup.y * params.pitch + four;
    let bits = mask[workgroup.y * params.words + four / 8u] >> (4u * (four % 8u));
    let allowed = (vec4<u32>(bits) & vec4<u32>(1u, 2u, 4u, 8u)) != vec4<u32>(0u);
    let is_padding = vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u) >= vec4<u32>(params.count); // padding does not change
    masked[place] = select(select(vec4<u32>(BANNED), logits[place], allowed), masked[place], is_padding);
}
