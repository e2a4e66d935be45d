//! The command `serve`: the model over HTTP, with the interfaces of OpenAI, Anthropic and llama.cpp, and a page.
//!
//! This is the only module that uses axum and tokio. Each reply is generated on a blocking thread; all of them share
//! the library's [`Scheduler`]. Asynchronous tasks write the replies in the form of an interface. What clients send is
//! not logged.

mod access;
mod anthropic;
mod body;
mod client;
pub mod compile_child;
mod compiling;
mod connection;
mod constraints;
mod conversation;
mod deadline;
mod failure;
mod fields;
mod figures;
mod host;
mod interface;
mod keys;
mod link;
mod listen;
mod llama;
mod memory;
mod metrics;
mod openai;
mod page;
mod places;
mod pools;
mod ready;
mod reload;
mod replies;
mod reply;
mod router;
mod run;
mod server;
mod stream;
mod transport;
mod unread;

pub use run::serve;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also if another thread panicked while it held the lock: such a panic leaves all data here valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
