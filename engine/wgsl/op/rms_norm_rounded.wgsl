// y = x / sqrt(mean(x²) + epsilon) · weight, as in op/rms_norm.wgsl, and y rounded to bytes. Each workgroup computes
// one vector, and each of its invocations some halves of groups.

struct Params {
    halves: u32,  // of a group, in a vector
    x_pitch: u32, // chunks of four values from one vector to the next
    y_pitch: u32,
    epsilon: f32,
}

var<uniform> params: Params;
var<storage, read> x: array<vec4<f32>>;
var<storage, read> weight: array<vec4<f32>>;
var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let source = i.workgroup.x * params.x_pitch;
    let to = i.workgroup.x * params.y_pitch;
    var squares = 0.0;
    for (var k = i.local; k < 4u * params.halves; k += WORKGROUP) {
        squares += dot(x[source + k], x[source + k]);
    }
    let mean = workgroup_sum(squares, team_of(i)) / f32(16u * params.halves);
    let scale = inverseSqrt(mean + params.epsilon);
    for (var h = i.local; h < params.halves; h += WORKGROUP) {
        var values: array<vec4<f32>, 4>;
        values[0] = x[source + 4u * h] * scale * weight[4u * h];
        values[1] = x[source + 4u * h + 1u] * scale * weight[4u * h + 1u];
        values[2] = x[source + 4u * h + 2u] * scale * weight[4u * h + 2u];
        values[3] = x[source + 4u * h + 3u] * scale * weight[4u * h + 3u];
        y[to + 4u * h] = values[0];
        y[to + 4u * h + 1u] = values[1];
        y[to + 4u * h + 2u] = values[2];
        y[to + 4u * h + 3u] = values[3];
        let half = to / 4u + h; // counted over all vectors
        write_half(GROUP_WORDS * (half / 2u), half % 2u, rounded_half(values));
    }
}
