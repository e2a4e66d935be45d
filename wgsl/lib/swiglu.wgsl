// silu(gate) · up, as a SwiGLU feed-forward has it.
fn swiglu(gate: f32, up: f32) -> f32 {
    let sigmoid = 1.0 / (1.0 + exp(select(-gate, 80.0, gate < -80.0))); // beyond 88, e^x is not finite
    return gate * sigmoid * up;
}

// Up to four rows of gate and of up.
struct Gated {
    gates: vec4<f32>,
    ups: vec4<f32>,
}

fn added(a: Gated, b: Gated) -> Gated {
    return Gated(a.gates + b.gates, a.ups + b.ups);
}

fn swiglu_rows(sums: Gated, factor: f32, team: Team) -> vec4<f32> {
    let gates = finished(sums.gates, factor, team);
    let ups = finished(sums.ups, factor, team);
    return vec4<f32>(
        swiglu(gates.x, ups.x), swiglu(gates.y, ups.y), swiglu(gates.z, ups.z), swiglu(gates.w, ups.w),
    );
}
