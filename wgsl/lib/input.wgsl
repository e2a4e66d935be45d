// The input of a product as it is.

var<storage, read> x: array<vec4<f32>>;

fn input(at: u32) -> vec4<f32> {
    return x[at];
}

fn input_staged(local: u32) {}

fn input_factor(team: Team) -> f32 {
    return 1.0;
}
