// A chunk's tokens, for files that serve a token alone as well.

fn first_position() -> u32 {
    return batch.position;
}

fn token_count() -> u32 {
    return batch.count;
}

// Cosine and sine of angle i, counted over all tokens.
fn turn(i: u32) -> vec2<f32> {
    return batch.turns[i];
}
