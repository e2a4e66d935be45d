//! `/ready`: whether a request for a reply would be accepted now, and why not. `/health` says that the server works,
//! and stays 200 while it is full. This path is for proxies that distribute requests.

use super::lock;
use super::router::json;
use super::server::Server;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wglm_engine::SchedulerState;

/// A model is stuck if it has work and completes no step for this long.
const STUCK: Duration = Duration::from_secs(30);

/// With less free memory than this, a request for a reply would be refused.
const MEMORY: usize = 4 << 20;
const BODIES: usize = 64 << 10;

/// The number of rounds that the model had completed at the last check, and since when it has not changed although
/// there was work.
#[derive(Debug, Default)]
pub struct Progress(Mutex<Option<(u64, Instant)>>);

impl Progress {
    /// How long the model is known to have completed nothing although it had work.
    fn idle(&self, state: &SchedulerState, now: Instant) -> Duration {
        let mut seen = lock(&self.0);
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

fn obstacles(server: &Server) -> Vec<String> {
    let model = match server.loaded() {
        Err(failure) => Some(failure.message),
        Ok(loaded) => {
            let idle = server.progress.idle(&loaded.scheduler.state(), Instant::now());
            (idle >= STUCK).then(|| format!("the model has completed no step for {} s", idle.as_secs()))
        }
    };
    let others = [
        (server.permits.is_closed(), "the server is shutting down".to_owned()),
        (!server.has_place(), format!("the queue is full ({} waiting)", server.limits.queue)),
        (server.pools.prompts.is_full(), "too many requests are waiting to be processed".to_owned()),
        (server.memory.requests.free() < MEMORY, "the memory for requests is exhausted (--max-memory)".to_owned()),
        (server.memory.bodies.free() < BODIES, "the memory for bodies is exhausted (--max-memory)".to_owned()),
    ];
    model.into_iter().chain(others.into_iter().filter_map(|(is_there, why)| is_there.then_some(why))).collect()
}

pub async fn ready(State(server): State<Arc<Server>>) -> Response {
    let obstacles = obstacles(&server);
    let response = json(&json!({"ready": obstacles.is_empty(), "obstacles": obstacles}));
    match obstacles.is_empty() {
        true => response,
        false => (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], response).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::Progress;
    use std::time::{Duration, Instant};
    use wglm_engine::{SchedulerState, SlotState};

    #[test]
    fn a_model_with_work_that_completes_nothing_is_stuck() {
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
        assert_eq!(progress.idle(&state(true, 5), after(100)).as_secs(), 0, "it had no work before");
        assert_eq!(progress.idle(&state(true, 5), after(140)).as_secs(), 40);
        assert_eq!(progress.idle(&state(true, 6), after(150)).as_secs(), 0);
        assert_eq!(progress.idle(&state(true, 6), after(151)).as_secs(), 1);
        assert_eq!(progress.idle(&state(false, 6), after(200)).as_secs(), 0);
    }
}
