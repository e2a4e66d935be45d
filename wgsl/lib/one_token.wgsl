// For kernels of several tokens that serve one alone: what lib/some_tokens.wgsl reads is known when they are compiled.
const ALONE = true;

fn token_count() -> u32 {
    return 1u;
}
