// Matrices of 8 x 8 multiply f16. Queries and weights are rounded to it, and the cache is f16 already.

alias Operand = f16;

fn operand(v: f32) -> Operand {
    return f16(v);
}
