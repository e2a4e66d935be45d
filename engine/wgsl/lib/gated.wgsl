// The sums of rows of a pair of matrices, gate and up.

// Up to four sums of gate and of up.
struct Gated {
    gates: vec4<f32>,
    ups: vec4<f32>,
}

fn added(a: Gated, b: Gated) -> Gated {
    return Gated(a.gates + b.gates, a.ups + b.ups);
}

fn swiglu_rows(sums: Gated, factors: vec4<f32>, team: Team) -> vec4<f32> {
    let gates = finished(sums.gates, factors, team);
    let ups = finished(sums.ups, factors, team);
    return vec4<f32>(
        swiglu(gates.x, ups.x), swiglu(gates.y, ups.y), swiglu(gates.z, ups.z), swiglu(gates.w, ups.w),
    );
}
