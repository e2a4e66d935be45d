//! Conversations that give the same replies every time.

use wglm::{Chat, Model, SamplerParams};

/// A greedy conversation without thinking.
pub fn greedy(model: &Model) -> Chat {
    let mut chat = Chat::new(model).unwrap();
    chat.options.sampling = SamplerParams::greedy();
    chat.options.max_tokens = Some(120);
    chat.reasoning = Some(false);
    chat
}
