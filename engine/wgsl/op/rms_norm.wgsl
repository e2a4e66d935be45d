// y = x / sqrt(mean(x²) + epsilon) · weight. Each workgroup is for one vector.

struct Params {
    width: u32,
    epsilon: f32,
    x_pitch: u32, // values from one vector to the next
    y_pitch: u32,
}

var<uniform> params: Params;
var<storage, read> x: array<f32>;
var<storage, read> weight: array<f32>;
var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let source = i.workgroup.x * params.x_pitch;
    let to = i.workgroup.x * params.y_pitch;
    var squares = 0.0;
    for (var k = i.local; k < params.width; k += WORKGROUP) {
        squares += x[source + k] * x[source + k];
    }
    let mean = workgroup_sum(squares, team_of(i)) / f32(params.width);
    let scale = inverseSqrt(mean + params.epsilon);
    for (var k = i.local; k < params.width; k += WORKGROUP) {
        y[to + k] = x[source + k] * scale * weight[k];
    }
}
