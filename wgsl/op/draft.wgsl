// Adds a draft to those that were made: the likeliest token. One workgroup.

struct Params {
    slices: u32, // of logits, of which there are maxima
}

var<uniform> params: Params;
var<storage, read_write> sampled: array<u32>; // as op/accept.wgsl leaves it

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) local: u32) {
    row = 0u;
    let top = likeliest(params.slices, local);
    if local == 0u {
        let drafting = SAMPLED_WORDS * (batch.rows[0].result + ROWS);
        let made = min(sampled[drafting + 1u], ROWS - 1u); // there are no more places
        sampled[drafting + 3u + made] = top.token;
        sampled[drafting + 1u] = made + 1u;
    }
}
