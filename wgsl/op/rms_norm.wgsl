// y = x / sqrt(mean(x²) + epsilon) · weight. One workgroup.

struct Params {
    width: u32,
    epsilon: f32,
}

var<uniform> params: Params;
var<storage, read> x: array<f32>;
var<storage, read> weight: array<f32>;
var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    var squares = 0.0;
    for (var k = i.local; k < params.width; k += WORKGROUP) {
        squares += x[k] * x[k];
    }
    let mean = workgroup_sum(squares, team_of(i)) / f32(params.width);
    let scale = inverseSqrt(mean + params.epsilon);
    for (var k = i.local; k < params.width; k += WORKGROUP) {
        y[k] = x[k] * scale * weight[k];
    }
}
