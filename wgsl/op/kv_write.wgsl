// Writes KV rows of the latent cache, a token a workgroup.

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    if i.workgroup.x < token_count() {
        write_kv_row(i.workgroup.x, i);
    }
}
