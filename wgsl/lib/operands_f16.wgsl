// Matrices of 8 x 8 multiply f16: queries and weights are rounded to it, the cache is f16 already.

alias Operand = f16;

// Past what f16 can hold values would be infinite.
fn operand(v: f32) -> Operand {
    return f16(clamp(v, -65504.0, 65504.0));
}
