//! A slot for a pipeline. The first thread that needs the pipeline compiles it, and the others wait for it: only as
//! long as a driver may need, because a compiler that hangs never returns.

use super::Pipeline;
use crate::error::{Error, Result, unpoisoned};
use crate::threads::lock;
use crate::wgsl::Variant;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// The slots of pipelines, by their shaders.
pub(crate) type PipelineSlots = Mutex<HashMap<Variant, Arc<PipelineSlot>>>;

/// The slot of one pipeline.
#[derive(Default)]
pub(crate) struct PipelineSlot {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
enum State {
    #[default]
    Empty,
    /// It has been compiling since this moment.
    Compiling(Instant),
    Ended(Result<Arc<Pipeline>>),
}

impl PipelineSlot {
    /// Whether the caller must compile the pipeline, because no thread has begun to. After a failure for a temporary
    /// reason, such as too little memory, it is compiled again; not after an error that `lasts`.
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

    /// Stores the pipeline or the error, even if no thread waits any longer.
    pub fn end(&self, compiled: Result<Arc<Pipeline>>) {
        *lock(&self.state) = State::Ended(compiled);
        self.ended.notify_all();
    }

    /// The pipeline or the error, if it is known yet.
    pub fn known(&self) -> Option<Result<Arc<Pipeline>>> {
        if let State::Ended(compiled) = &*lock(&self.state) { Some(compiled.clone()) } else { None }
    }

    /// Waits until it is compiled. Given when compiling began, `left` returns how much longer to wait; if it returns an
    /// error, the pipeline has failed with that error.
    pub fn wait(&self, left: impl Fn(Instant) -> Result<Duration>) -> Result<Arc<Pipeline>> {
        let mut state = lock(&self.state);
        loop {
            let left = match &*state {
                State::Ended(compiled) => return compiled.clone(),
                State::Compiling(since) => left(*since),
                State::Empty => Ok(Duration::from_secs(1)), // no thread waits before one has begun
            };
            match left {
                Ok(left) => state = unpoisoned(self.ended.wait_timeout(state, left.max(Duration::from_millis(1)))).0,
                Err(error) => *state = State::Ended(Err(error)),
            }
        }
    }
}
