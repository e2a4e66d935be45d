//! Ollama's API, as desktop programs call it. Streams are lines of JSON, and a request gets a stream unless it says
//! otherwise. The calls of a reply are sent whole.

mod chat;
mod fields;
mod generate;
mod lines;
pub mod models;

pub use fields::Common;
use lines::Lines;
pub use lines::nanoseconds;
pub use models::{Described, describe};

pub type Chat = Lines<chat::Body>;
pub type Generate = Lines<generate::Body>;
