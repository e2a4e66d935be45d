//! The command `serve`: the model over HTTP, with the interfaces of OpenAI, Anthropic and llama.cpp, and a page.
//!
//! axum and tokio are here and nowhere else. Replies are generated on threads that block, one each, which share the
//! library's [`Scheduler`]; tasks put them into the words of an interface. What clients say is logged nowhere.

mod access;
mod anthropic;
mod body;
mod client;
pub mod compile_child;
mod compiling;
mod connection;
mod constraints;
mod deadline;
mod events;
mod failure;
mod fields;
mod figures;
mod host;
mod job;
mod keys;
mod link;
mod listen;
mod llama;
mod memory;
mod metrics;
mod openai;
mod page;
mod pieces;
mod places;
mod pools;
mod ready;
mod reload;
mod router;
mod run;
mod server;
mod transport;
mod unread;

pub use run::serve;
