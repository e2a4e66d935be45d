// For kernels of several tokens that need not know where they stand: there is one.
const ALONE = true;

fn token_count() -> u32 {
    return 1u;
}
