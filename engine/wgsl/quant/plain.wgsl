// For formats that store the values themselves. They provide, besides their stream:
//   w_decode(g)  the 32 values of group g

// Dot product of group g and the activations.
fn w_dot(g: u32, x: ptr<function, Group>) -> f32 {
    var values = w_decode(g);
    var sum = vec4<f32>(0.0);
    for (var k = 0u; k < 8u; k++) {
        sum += values[k] * (*x).raw[k];
    }
    return dot(sum, vec4<f32>(1.0));
}
