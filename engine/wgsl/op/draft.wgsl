// Appends the likeliest token of each row to the drafts of its sequence. One workgroup for each row.

struct Params {
    slices: u32, // of a row's logits, each with a maximum
}

var<uniform> params: Params;
var<storage, read_write> sampled: array<u32>; // as op/accept.wgsl writes it

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    row = workgroup.x;
    if workgroup.x >= row_count() {
        return;
    }
    let top = likeliest(params.slices, local);
    if local == 0u {
        let drafting = SAMPLED_WORDS * (batch.rows[row].result + ROWS + DRAFTING * batch.rows[row].sequence);
        let made = min(sampled[drafting + 1u], MAX_DRAFTS - 1u);
        sampled[drafting + 3u + made] = top.token;
        sampled[drafting + 1u] = made + 1u;
    }
}
