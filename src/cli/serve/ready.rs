//! `/ready`: whether a request for a reply would be accepted now, and what is in its way if not. `/health` says that the
//! server lives; it stays 200 while a server is full. A proxy that spreads requests asks this path.

use super::router::json;
use super::server::Server;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::json;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wglm::SchedulerState;

/// A model that has replies to work on is stuck if it completes no step for this long.
const STUCK: Duration = Duration::from_secs(30);

/// With less free memory than this, a request for a reply would be refused.
const MEMORY: usize = 4 << 20;
const BODIES: usize = 64 << 10;

/// The number of rounds that the model had completed when it was last looked at, and since when that number has not changed
/// although there are replies.
#[derive(Debug, Default)]
pub struct Progress(Mutex<Option<(u64, Instant)>>);

impl Progress {
    /// For how long the model has done nothing, as far as was seen, while it had replies to work on.
    fn idle(&self, state: &SchedulerState, now: Instant) -> Duration {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = state.waiting > 0 || state.slots.iter().any(|slot| slot.busy);
        let rounds = state.counts.rounds;
        *seen = match *seen {
            _ if !busy => None,
            Some((before, since)) if before == rounds => Some((before, since)),
            _ => Some((rounds, now)),
        };
        seen.map_or(Duration::ZERO, |(_, since)| now.duration_since(since))
    }
}

/// What is in the way of a request.
fn obstacles(server: &Server) -> Vec<String> {
    let mut obstacles = Vec::new();
    match server.engine() {
        Err(failure) => obstacles.push(failure.message),
        Ok(engine) => {
            let idle = server.progress.idle(&engine.scheduler.state(), Instant::now());
            if idle >= STUCK {
                obstacles.push(format!("the model has completed no step for {} s", idle.as_secs()));
            }
        }
    }
    if server.is_closed() {
        obstacles.push("the server is shutting down".to_owned());
    }
    if !server.has_place() {
        obstacles.push(format!("the queue is full ({} waiting)", server.limits.queue));
    }
    if server.pools.prompts.is_full() {
        obstacles.push("all threads for prompts are busy, and as many requests wait for one as may".to_owned());
    }
    if server.memory.requests.free() < MEMORY {
        obstacles.push("the memory for requests is exhausted (--max-memory)".to_owned());
    }
    if server.memory.bodies.free() < BODIES {
        obstacles.push("the memory for bodies is exhausted (--max-memory)".to_owned());
    }
    obstacles
}

pub async fn ready(State(server): State<Arc<Server>>) -> Response {
    let obstacles = obstacles(&server);
    let is_ready = obstacles.is_empty();
    let mut response = json(&json!({"ready": is_ready, "obstacles": obstacles}));
    if !is_ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(1));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::Progress;
    use std::time::{Duration, Instant};
    use wglm::{SchedulerState, SlotState};

    #[test]
    fn a_model_is_stuck_that_has_work_and_does_none() {
        let state = |busy, rounds| {
            let (mut state, mut slot) = (SchedulerState::default(), SlotState::default());
            slot.busy = busy;
            state.slots = vec![slot];
            state.counts.rounds = rounds;
            state
        };
        let (progress, start) = (Progress::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(progress.idle(&state(false, 5), after(0)).as_secs(), 0);
        assert_eq!(progress.idle(&state(true, 5), after(100)).as_secs(), 0, "nothing was to be done before");
        assert_eq!(progress.idle(&state(true, 5), after(140)).as_secs(), 40);
        assert_eq!(progress.idle(&state(true, 6), after(150)).as_secs(), 0);
        assert_eq!(progress.idle(&state(true, 6), after(151)).as_secs(), 1);
        assert_eq!(progress.idle(&state(false, 6), after(200)).as_secs(), 0);
    }
}
