// For kernels that only need the number of rows, in a plan of a single row: it is known when they are compiled, and
// they bind one buffer less.
const ONE_ROW = true;

fn row_count() -> u32 {
    return 1u;
}
