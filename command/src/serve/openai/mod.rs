//! OpenAI's APIs.

pub mod chat;
mod completions;
mod frame;
pub mod messages;
pub mod models;
mod responses;

pub use chat::Chat;
pub use completions::Completions;
pub use responses::{KeptResponses, Responses, input_tokens, kept};
