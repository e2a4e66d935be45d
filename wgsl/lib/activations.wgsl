// Functions of a single value that networks put between products.

fn sigmoid(z: f32) -> f32 {
    return 1.0 / (1.0 + exp(select(-z, 80.0, z < -80.0))); // beyond 88, e^x is not finite
}

// silu(gate) · up, as a SwiGLU feed-forward has it.
fn swiglu(gate: f32, up: f32) -> f32 {
    return gate * sigmoid(gate) * up;
}
