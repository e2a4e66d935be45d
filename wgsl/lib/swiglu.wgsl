// silu(gate) · up, as a SwiGLU feed-forward has it.
fn swiglu(gate: f32, up: f32) -> f32 {
    let sigmoid = 1.0 / (1.0 + exp(select(-gate, 80.0, gate < -80.0))); // beyond 88, e^x is not finite
    return gate * sigmoid * up;
}
