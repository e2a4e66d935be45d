//! Where a pipeline is once it is compiled. Whoever finds nothing there compiles it, and who wants it meanwhile waits: no
//! longer than a driver may need, because a driver's compiler that hangs never comes back.

use super::Pipeline;
use crate::error::{Error, Result};
use crate::threads::lock;
use crate::wgsl::Variant;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Pipelines, by their shaders.
pub(crate) type PipelineSlots = Mutex<HashMap<Variant, Arc<PipelineSlot>>>;

/// One of them.
#[derive(Default)]
pub(crate) struct PipelineSlot {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
enum State {
    #[default]
    Empty,
    /// It is being compiled, since then.
    Compiling(Instant),
    Ended(Result<Arc<Pipeline>>),
}

impl PipelineSlot {
    /// Whether the caller has to compile the pipeline: nobody does it, and nothing is known of it. What failed for a reason
    /// that may pass, such as too little memory, is tried again; what `lasts` is not.
    pub fn begin(&self, lasts: impl Fn(&Error) -> bool) -> bool {
        let mut state = lock(&self.state);
        let begin = match &*state {
            State::Empty => true,
            State::Compiling(_) | State::Ended(Ok(_)) => false,
            State::Ended(Err(error)) => !lasts(error),
        };
        if begin {
            *state = State::Compiling(Instant::now());
        }
        begin
    }

    /// Takes what became of it, also if nobody waits any longer.
    pub fn end(&self, compiled: Result<Arc<Pipeline>>) {
        *lock(&self.state) = State::Ended(compiled);
        self.ended.notify_all();
    }

    /// What became of it, as far as that is known.
    pub fn known(&self) -> Option<Result<Arc<Pipeline>>> {
        if let State::Ended(compiled) = &*lock(&self.state) { Some(compiled.clone()) } else { None }
    }

    /// Waits until it is compiled. `left` says how much longer, given when that began; if nothing is left, the pipeline has
    /// failed with the error in its place.
    pub fn wait(&self, left: impl Fn(Instant) -> Result<Duration>) -> Result<Arc<Pipeline>> {
        let mut state = lock(&self.state);
        loop {
            let left = match &*state {
                State::Ended(compiled) => return compiled.clone(),
                State::Compiling(since) => left(*since),
                State::Empty => Ok(Duration::from_secs(1)), // nobody asks before somebody has begun
            };
            match left {
                Ok(left) => {
                    let waited = self.ended.wait_timeout(state, left.max(Duration::from_millis(1)));
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                Err(error) => *state = State::Ended(Err(error)),
            }
        }
    }
}
