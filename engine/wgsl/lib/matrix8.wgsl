// Cooperative matrices of SIDE x SIDE values, which is 8 x 8, as on Metal.

alias Left = coop_mat8x8<f16, A>;
alias Right = coop_mat8x8<f16, B>;
alias Sums = coop_mat8x8<f32, C>;

// They can only be loaded from f16.
const CELL = 1u;
alias Cell = f16;

fn put_vector(at: u32, v: vec4<f16>) {
    vectors[at] = v.x;
    vectors[at + 1u] = v.y;
    vectors[at + 2u] = v.z;
    vectors[at + 3u] = v.w;
}

fn put_row(at: u32, v: vec4<f16>) {
    rows[at] = v.x;
    rows[at + 1u] = v.y;
    rows[at + 2u] = v.z;
    rows[at + 3u] = v.w;
}
