// Activation functions of a single value.

fn sigmoid(z: f32) -> f32 {
    return 1.0 / (1.0 + exp(select(-z, 80.0, z < -80.0))); // beyond 88, e^x is not finite
}

// silu(gate) · up, for a SwiGLU feed-forward.
fn swiglu(gate: f32, up: f32) -> f32 {
    return gate * sigmoid(gate) * up;
}
