// Writes one token's line of the latent cache. One workgroup.

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    write_line(i);
}
