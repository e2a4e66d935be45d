// The next token: the likeliest; NO_TOKEN where no logit is a number. One workgroup.

struct Params {
    slices: u32, // of the logits
}

var<uniform> params: Params;
var<storage, read_write> token: array<u32>; // the chosen one, the likeliest, how many the filters kept

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) local: u32) {
    let top = likeliest(params.slices, local);
    if local == 0u {
        token[0] = top.token;
        token[1] = top.token;
    }
}
