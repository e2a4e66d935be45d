// Writes the KV rows of a batch, each with one workgroup. Their inputs may be several parts that remain to be summed.

struct Params {
    pitch: u32, // chunks of four values from row to row
    parts: u32,
    apart: u32, // chunks from part to part
}

var<uniform> params: Params;

fn kv_chunk(row: u32, k: u32) -> vec4<f32> {
    var sum = kv[row * params.pitch + k];
    for (var part = 1u; part < params.parts; part++) {
        sum += kv[row * params.pitch + part * params.apart + k];
    }
    return sum;
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    if i.workgroup.x < row_count() {
        write_kv_row(i.workgroup.x, i);
    }
}
