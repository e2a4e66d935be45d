// Sums the parts of a product, and normalises the result: x = the sums, or += them, with the outputs of the selected
// experts if there are any; h = x / sqrt(mean(x²) + epsilon) · weight. Each workgroup is for one row.

struct Params {
    width: u32,   // values of x
    staged: u32,  // chunks of four values from a part to the next
    parts: u32,
    x_pitch: u32, // chunks from row to row
    h_pitch: u32,
    epsilon: f32,
}

var<uniform> params: Params;
var<storage, read> parts: array<vec4<f32>>; // [row][part][value]
var<storage, read> weight: array<vec4<f32>>;
var<storage, read_write> x: array<vec4<f32>>;
var<storage, read_write> h: array<vec4<f32>>;

fn sum_of(row: u32, k: u32) -> vec4<f32> {
    var sum = from_slots(row, k);
    if ACCUMULATE {
        sum += x[row * params.x_pitch + k];
    }
    for (var part = 0u; part < params.parts; part++) {
        sum += parts[(row * params.parts + part) * params.staged + k];
    }
    return sum;
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let row = i.workgroup.x;
    let chunks = params.width / 4u;
    let live = row < row_count();
    var squares = 0.0;
    for (var k = i.local; live && k < chunks; k += WORKGROUP) {
        let sum = sum_of(row, k);
        x[row * params.x_pitch + k] = sum;
        squares += dot(sum, sum);
    }
    let mean = workgroup_sum(squares, team_of(i)) / f32(params.width);
    let scale = inverseSqrt(mean + params.epsilon);
    for (var k = i.local; live && k < chunks; k += WORKGROUP) {
        h[row * params.h_pitch + k] = x[row * params.x_pitch + k] * scale * weight[k];
    }
}
