// What changes from token to token. Everything else a kernel reads is fixed when the plan is built.

struct State {
    token: u32,    // id of the token being computed
    position: u32, // its place in the sequence, from 0; the cache holds this many tokens before it
    turns: array<vec2<f32>>, // cosine and sine of the position's rotary angles, a pair each
}

var<storage, read> state: State;
