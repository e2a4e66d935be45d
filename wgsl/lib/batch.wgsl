// What the host writes before each token, or before each chunk of tokens. Everything else a kernel reads is fixed when
// the plan is built, but for the tokens' ids, which the GPU itself may choose and which are a buffer of their own.
// Kernels know by this alone how many tokens there are, so that plans with room for more or fewer share them. Tokens
// past `count` may hold anything.

struct Batch {
    position: u32, // of the first token in the sequence, from 0; the cache holds this many tokens before it
    count: u32,    // tokens: one, or those of the chunk
    splits: u32,   // into how many attention cuts the cache
    submission: u32, // the number of the submission that reads this, which it copies back to the host
    rotations: array<vec2<f32>>, // cosine and sine of the positions' rotary angles: of each token, a pair each
}

var<storage, read> batch: Batch;
