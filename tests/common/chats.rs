//! Conversations that give the same replies every time.

use std::task::Poll;
use wglm::{Chat, Model, SamplerParams};

/// A greedy conversation without thinking.
pub fn greedy(model: &Model) -> Chat {
    let mut chat = Chat::new(model).unwrap();
    chat.options.sampling = SamplerParams::greedy();
    chat.options.max_tokens = Some(120);
    chat.reasoning = Some(false);
    chat
}

/// Takes events of a reply until there is none to take. How many come before the first call depends on the GPU.
#[track_caller]
pub fn take_events<T>(mut poll: impl FnMut() -> Poll<Option<T>>) {
    while let Poll::Ready(event) = poll() {
        assert!(event.is_some(), "the reply has ended");
    }
}
