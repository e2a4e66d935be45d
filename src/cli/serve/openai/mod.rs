//! OpenAI's interfaces.

pub mod chat;
mod chat_words;
pub mod completions;
mod completions_words;
pub mod conversation;
pub mod models;
pub mod responses;
mod responses_input;
mod responses_words;

use super::events::Chunks;
use serde_json::Value;

/// What other interfaces say in the same words.
pub mod words {
    pub use super::chat_words::{ARGUMENTS, arguments, cut};
}

/// Ends a stream of chat completions or completions, after a last chunk if there is one.
fn end_stream(last: Option<Value>, to: &mut Chunks) {
    if let Some(chunk) = last {
        to.data(&chunk);
    }
    to.raw("[DONE]");
}
