// Writes the KV rows of a batch, each by one workgroup.

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    if i.workgroup.x < row_count() {
        write_kv_row(i.workgroup.x, i);
    }
}
