//! OpenAI's interfaces.

mod answer;
pub mod chat;
mod chat_words;
pub mod completions;
mod completions_words;
pub mod conversation;
pub mod models;
pub mod responses;
mod responses_input;
mod responses_words;

/// What other interfaces say in the same words.
pub mod words {
    pub use super::chat_words::{ARGUMENTS, arguments, cut};
}
