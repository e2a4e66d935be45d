//! The command `serve`: the model over HTTP, with OpenAI-, Anthropic-, Ollama- and llama.cpp-compatible APIs, and
//! a page.
//!
//! This is the only module that uses axum and tokio. Each reply is generated on a blocking thread; all of them share
//! the library's [`Scheduler`]. Asynchronous tasks write the replies in the form of the interface. What clients send is
//! not logged.
//!
//! A request for a reply passes through these files:
//!
//! 1. `listen` accepts the connection and limits the number of connections. `connection` hands it to hyper, and notices
//!    when the client is gone; `transport` disconnects clients that read too slowly; `link` is the state that they
//!    share.
//! 2. `router` finds the handler of the path. Before that, `access` checks the host, the origin and the key (`host`,
//!    `client`).
//! 3. `body` receives the body, limits its length and its time, and counts its memory (`memory`). It also receives a
//!    little more of a refused body, so that the client gets the refusal instead of a reset connection.
//! 4. `interface` is the handler. On a thread of a pool (`pools`, `admission`), an `Interface` parses the body:
//!    `openai::chat`, `openai::completions`, `openai::responses`, `anthropic`, `ollama::chat` or `ollama::generate`.
//!    They share `parse` (errors that name a field), `fields`, `unmet` (what is refused or ignored), `constraints`,
//!    `conversation` and `parts` (what the parts of messages say). `compiling` first compiles schemas in a separate
//!    process. `counting` only counts the tokens of a conversation, for requests without a reply.
//! 5. `replies` takes a permit for each reply (`reply_permits`) and generates it on a thread that blocks in the
//!    scheduler. Events go through one queue (`unread`); `reply` turns them into deltas, and `deadline` cancels the
//!    replies at their time limit.
//! 6. `stream` lets the `Interface` write deltas as events or lines whenever the connection has taken the earlier
//!    ones. An answer without a stream collects them first.
//!
//! An answer begins when all of its replies are accepted and the first token exists, or after a second: failures before
//! that have a status of their own, except those that an interface reports as events. A stream that cannot be finished
//! ends its connection, so that no client mistakes a part for the whole reply.

mod access;
mod admission;
mod anthropic;
mod body;
mod client;
pub mod compile_child;
mod compiling;
mod connection;
mod constraints;
mod conversation;
mod counting;
mod deadline;
mod embeddings;
mod failure;
mod fields;
mod figures;
pub mod host;
mod infill;
mod interface;
mod keys;
mod link;
mod listen;
mod llama;
mod loader;
mod memory;
mod metrics;
mod ollama;
mod openai;
mod others;
mod page;
mod parse;
mod parts;
mod pools;
mod prompts;
mod ready;
mod recent;
mod reload;
mod replies;
mod reply;
mod reply_permits;
mod rerank;
mod router;
mod run;
mod server;
mod stream;
mod transport;
mod unmet;
mod unread;

pub use run::serve;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if another thread panicked while it held the lock: such a panic leaves all data here valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
