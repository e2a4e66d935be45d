// For formats whose values are scale · byte + offset, with one scale and one offset for each half of a
// group, where the bytes are stored or what a table has for what is stored. They provide, besides their streams:
//   w_bytes(g)   the group's 32 values as signed bytes
//   w_affine(g)  (scale of 0..15, scale of 16..31, offset of 0..15, offset of 16..31)
//   w_zero       what to add to a byte to make it unsigned: 0 or 128

// The 32 values of group g.
fn w_decode(g: u32) -> array<vec4<f32>, 8> {
    let bytes = w_bytes(g);
    let a = w_affine(g);
    var out: array<vec4<f32>, 8>;
    for (var k = 0u; k < 4u; k++) {
        out[k] = a.x * vec4<f32>(unpack4xI8(bytes.low[k])) + a.z;
        out[k + 4u] = a.y * vec4<f32>(unpack4xI8(bytes.high[k])) + a.w;
    }
    return out;
}
