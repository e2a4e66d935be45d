// Sums the parts of a product: y = the sums, or += them, or silu(gate) · up, with the sums alternating between SIDE
// rows of gate and SIDE of up.

struct Params {
    chunks: u32,   // of four values, in a vector of y
    staged: u32,   // chunks of a vector of a part
    stacks: u32,   // vectors of a row of the batch
    parts: u32,
    y_stride: u32, // chunks from vector to vector
    y_pitch: u32,  // chunks from row to row of the batch
}

var<uniform> params: Params;
var<storage, read> parts: array<vec4<f32>>; // [row of the batch][part][vector][staged row]
var<storage, read_write> y: array<vec4<f32>>;

fn sum_of(first: u32) -> vec4<f32> {
    var sum = vec4<f32>(0.0);
    for (var part = 0u; part < params.parts; part++) {
        sum += parts[first + part * params.stacks * params.staged];
    }
    return sum;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let at = workgroup.x * WORKGROUP + local;
    let token = workgroup.y;
    let vector = workgroup.z;
    if at >= params.chunks || token >= row_count() {
        return;
    }
    let first = (token * params.parts * params.stacks + vector) * params.staged;
    let to = token * params.y_pitch + vector * params.y_stride + at;
    if GATED {
        let side = SIDE / 4u;
        let gate = first + at / side * 2u * side + at % side;
        let g = sum_of(gate);
        let u = sum_of(gate + side);
        let v = vec4<f32>(swiglu(g.x, u.x), swiglu(g.y, u.y), swiglu(g.z, u.z), swiglu(g.w, u.w));
        y[to] = select(v, in_half_range(v), vec4<bool>(LIMIT_TO_F16));
    } else if ACCUMULATE {
        y[to] += sum_of(first + at);
    } else {
        y[to] = sum_of(first + at);
    }
}
