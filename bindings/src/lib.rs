//! wglm for other languages: objects over the library's public API, from which UniFFI makes the Swift package and the
//! Python package of this repository. Nothing is computed here.
//!
//! Calls that compute block, unless they are asynchronous: apps make them on a worker thread. An asynchronous call
//! occupies no thread; a [`Reply`] is generated on its own. A call that is no longer wanted is stopped by its
//! [`Cancel`], a reply by [`Reply::stop`]: dropping the future of an asynchronous call only stops waiting.
//!
//! All objects can be used from several threads and be dropped in any order: a model's memory is freed with the last
//! object that uses it.

// To see that a conversation can be shared between threads, the compiler follows wgpu's types through UniFFI's.
#![recursion_limit = "256"]

mod ask;
mod cancel;
mod catalog;
mod chat;
mod error;
mod event;
mod load;
mod message;
mod model;
mod options;
mod reply;

pub use ask::Asking;
pub use cancel::Cancel;
pub use catalog::{
    Adapter, LocalModel, PullListener, PullOptions, PullProgress, adapters, find_model, local_models, pull,
};
pub use chat::{Chat, Overflow};
pub use error::WglmError;
pub use event::{Event, Logprob, Stats, Stop, TokenLogprobs};
pub use load::{CacheType, Estimate, LoadListener, LoadOptions, LoadProgress, LoadStage, estimate};
pub use message::{Function, Message, ToolCall};
pub use model::{Model, TuneListener, TuneProgress};
pub use options::{Calls, Constraint, Options};
pub use reply::{EventListener, Reply};

uniffi::setup_scaffolding!();

/// The version of wglm.
#[uniffi::export]
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// A count as the other languages see it. None of wglm's comes near four billion.
fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Locks a mutex. What it protects is valid even if a thread panicked while it held the lock.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
