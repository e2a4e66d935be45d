// For kernels that ask of the batch no more than how many rows it has, in a plan of a row alone: what lib/batch.wgsl
// reads is known when they are compiled, and they bind one buffer less.
const ONE_ROW = true;

fn row_count() -> u32 {
    return 1u;
}
