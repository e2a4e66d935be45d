// Appends the likeliest token to the drafts. One workgroup.

struct Params {
    slices: u32, // of logits, each with a maximum
}

var<uniform> params: Params;
var<storage, read_write> sampled: array<u32>; // as op/accept.wgsl writes it

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) local: u32) {
    row = 0u;
    let top = likeliest(params.slices, local);
    if local == 0u {
        let drafting = SAMPLED_WORDS * (batch.rows[0].result + ROWS);
        let made = min(sampled[drafting + 1u], ROWS - 1u); // the capacity
        sampled[drafting + 3u + made] = top.token;
        sampled[drafting + 1u] = made + 1u;
    }
}
