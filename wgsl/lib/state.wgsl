// What the host writes before each token. Everything else a kernel reads is fixed when the plan is built, but
// for the token's id, which the GPU itself may choose and which is a buffer of its own.

struct State {
    position: u32, // the token's place in the sequence, from 0; the cache holds this many tokens before it
    ticket: u32,   // the host's number for this run of the head, which the result carries back
    turns: array<vec2<f32>>, // cosine and sine of the position's rotary angles, a pair each
}

var<storage, read> state: State;

// What files that serve chunks of tokens as well ask for: see lib/batch_tokens.wgsl.
fn first_position() -> u32 {
    return state.position;
}

fn token_count() -> u32 {
    return 1u;
}

fn turn(i: u32) -> vec2<f32> {
    return state.turns[i];
}
