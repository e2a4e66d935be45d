//! What a rendering may still do: how many bytes of text and lists it may make, and how much work it may cost.
//!
//! The engine counts its steps but not what a step costs, and a single `~` can double a string. So everything that
//! makes or reads values pays here first. Each rendering runs on a thread of its own ([`thread`](super::thread)), and
//! its budget is a variable of that thread, because the engine has no other state that filters, methods and the
//! formatter can all reach.

use minijinja::{Error, ErrorKind};
use std::cell::Cell;

/// The most bytes that a rendering may make: all text and lists, whether they are still in use or not, and the output.
pub const MADE: u64 = 64 << 20;

/// How many further bytes it may make for each byte of the conversation. Templates copy a message a few times; those
/// that collect messages in a list copy the list for each.
pub const MADE_OF_INPUT: u64 = 64;

/// The most work of a rendering. A unit is the cost of reading or copying one byte of text: up to a few nanoseconds.
pub const WORK: u64 = 1 << 28;

/// How much further work it may do for each byte of the conversation.
pub const WORK_OF_INPUT: u64 = 256;

thread_local! {
    static LEFT: Cell<Left> = const { Cell::new(Left { made: 0, work: 0 }) };
}

#[derive(Clone, Copy)]
struct Left {
    made: u64,
    work: u64,
}

/// Sets the budget of this thread's rendering, for a conversation of `input` bytes.
pub fn start(input: u64) {
    let made = MADE.saturating_add(input.saturating_mul(MADE_OF_INPUT));
    let work = WORK.saturating_add(input.saturating_mul(WORK_OF_INPUT));
    LEFT.set(Left { made, work });
}

/// Pays for `units` of work.
pub fn work(units: u64) -> Result<(), Error> {
    let left = LEFT.get();
    let Some(work) = left.work.checked_sub(units) else {
        return Err(error("the template takes too long: it reads the same text or lists again and again"));
    };
    LEFT.set(Left { work, ..left });
    Ok(())
}

/// Pays for `bytes` that were or will be made.
pub fn make(bytes: u64) -> Result<(), Error> {
    let left = LEFT.get();
    let made = left.made.checked_sub(bytes).ok_or_else(exceeded)?;
    LEFT.set(Left { made, ..left });
    Ok(())
}

/// Checks that `bytes` could be made, before an operation that makes at most as many.
pub fn afford(bytes: u64) -> Result<(), Error> {
    if bytes <= left() { Ok(()) } else { Err(exceeded()) }
}

/// The bytes that may still be made.
pub fn left() -> u64 {
    LEFT.get().made
}

/// The error of a rendering that makes too much.
pub fn exceeded() -> Error {
    error(&format!(
        "the template makes more text and lists than {} MiB plus {MADE_OF_INPUT} times the size of the conversation",
        MADE >> 20
    ))
}

fn error(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.to_owned())
}
