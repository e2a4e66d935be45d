// Writes lines of the latent cache, a token a workgroup.

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    if i.workgroup.x < token_count() {
        write_line_of(i.workgroup.x, i);
    }
}
