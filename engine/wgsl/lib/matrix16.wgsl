// How products store values for matrices of 16 x 16. Matrices of this size can be loaded from vec4s as well as from
// f16, so values are written to workgroup memory four at a time.

const CELL = 4u;
alias Cell = vec4<f16>;

fn put_vector(at: u32, v: vec4<f16>) {
    vectors[at / 4u] = v;
}

fn put_row(at: u32, v: vec4<f16>) {
    rows[at / 4u] = v;
}
