//! Runs work on a thread with a stack of known size, independent of the caller's.

use super::matcher::failed;
use crate::error::Result;
use std::cell::Cell;
use std::thread::{Builder, scope};

/// The size of the stack; only the used part takes memory. llguidance recurses for each property of an object and for
/// each level of a schema: an object of 1000 properties takes 0.5 MB and 150 levels take 2 MB in a debug build.
const SIZE: usize = 32 << 20;

thread_local! {
    static IS_LARGE: Cell<bool> = const { Cell::new(false) };
}

/// Runs something on such a thread, or directly if this is one.
///
/// # Errors
/// [`Error::Constraint`](crate::Error::Constraint) if the system refuses a thread, or if the thread panics.
pub(super) fn with_stack<T: Send>(kind: &'static str, run: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    if IS_LARGE.get() {
        return run();
    }
    let run = move || {
        IS_LARGE.set(true);
        run()
    };
    scope(|scope| {
        let thread = Builder::new().name("wglm-grammar".to_owned()).stack_size(SIZE).spawn_scoped(scope, run);
        let thread = thread.map_err(|error| failed(kind, "", format!("no thread to compile it: {error}")))?;
        thread.join().unwrap_or_else(|_| Err(failed(kind, "", "compiling it failed, which is a bug in wglm")))
    })
}
