//! Ollama's API, as programs with a window call it. Streams are lines of JSON, and a stream is what a request gets that
//! does not say otherwise. The calls of a reply come whole.

mod chat;
mod fields;
mod generate;
mod lines;
pub mod models;

use lines::Lines;
pub use models::{Described, describe};

pub type Chat = Lines<chat::Body>;
pub type Generate = Lines<generate::Body>;
