// What the host writes before each chunk of tokens. Tokens past `count` may hold anything.

struct Batch {
    position: u32, // of the first token in the sequence, from 0; the cache holds this many tokens before it
    count: u32,    // tokens of the chunk
    turns: array<vec2<f32>>, // cosine and sine of the positions' rotary angles: of each token, a pair each
}

var<storage, read> batch: Batch;
